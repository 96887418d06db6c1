"""Everything runs on a second device: nothing is mixed, the result is the CPU's, reads are few.

The device has no hardware (`tests.support.second_device`), so that what would fail on a GPU for
want of a ``device=``, or stall it by reading back, fails here.
"""

import copy
import math
from dataclasses import replace

import pytest
import torch

from benchmarks.verify.tolerances import ANOTHER_DEVICE
from tests.support.second_device import SECOND, MixedDevicesError, on_host, on_second, second_device
from tests.support.training import CONFIGURATION, RECIPE
from torch_impl.cider import CiderD
from torch_impl.common.padding import checking_values
from torch_impl.decoding import beam_search, greedy, sample
from torch_impl.decoding.beams import READ_EVERY
from torch_impl.decoding.ensemble import Ensemble
from torch_impl.decoding.grid_beam import grid_beam_search
from torch_impl.decoding.middle_out import middle_out_beam_search
from torch_impl.expansion import DynamicExpansion, StaticExpansion
from torch_impl.layers.swin import SwinConfiguration
from torch_impl.models import (
    EndToEndConfiguration,
    SequenceClassifier,
    attentive_nic,
    build,
    code_captioner,
    middle_out_captioner,
    nic,
    read_only_nic,
    sequence_to_sequence,
    transformer,
)
from torch_impl.models.denoising import Denoiser
from torch_impl.recurrent.auto_reconstructor import AutoReconstructor
from torch_impl.training import (
    Batch,
    CrossEntropyTraining,
    ImageBatch,
    NonFiniteError,
    SelfCriticalTraining,
)
from torch_impl.training.computation import PRECISIONS, Computation
from torch_impl.training.optimisation import ALGORITHMS

V, D = CONFIGURATION.vocabulary_size, CONFIGURATION.d_feature
PLAIN = replace(CONFIGURATION, dropout=0.0, max_length=20)
SMALL = {"d_embedding": 8, "hidden_size": 8, "max_length": 9}
MODELS = {
    **{
        f"{encoder} | {decoder}, {reduction}": lambda e=encoder, d=decoder, r=reduction: build(
            replace(PLAIN, encoder=e, decoder=d, encoder_reduction=r, decoder_reduction=r)
        )
        for encoder, decoder, reduction in (
            ("attention", "attention", "norm"),
            ("static:3,2", "dynamic:2", "linear"),
            ("dynamic:2", "dynamic:1", "norm"),
            ("aoa", "aoa", "norm"),
        )
    },
    "nic": lambda: nic(V, D, **SMALL),
    "attentive nic": lambda: attentive_nic(V, D, **SMALL),
    "read-only nic": lambda: read_only_nic(V, D, **SMALL),
    "code captioner": lambda: code_captioner(V, V, **SMALL),
    "arnet": lambda: nic(V, D, **SMALL),
    "sequence to sequence": lambda: sequence_to_sequence(V, D, **SMALL),
    "self-attention": lambda: sequence_to_sequence(V, D, self_attention="dual", **SMALL),
    "middle out": lambda: middle_out_captioner(V, D, **SMALL),
}
BY_TOKEN = [*MODELS][: [*MODELS].index("arnet")]


def features_of(name):
    random = torch.Generator().manual_seed(1)
    lengths = torch.tensor([4, 1, 3])
    if name == "code captioner":
        return torch.randint(V, (3, 4), generator=random), lengths
    return torch.randn(3, 4, D, generator=random, dtype=torch.float64), lengths


def model_of(name):
    torch.manual_seed(0)
    return MODELS[name]().double()


class Epoch:
    """The batches of an epoch."""

    def __init__(self, *batches):
        self.batches = batches

    def __len__(self):
        return len(self.batches)

    def epoch(self, epoch, start):
        return iter(self.batches[start:])


def batch_of(name):
    features, lengths = features_of(name)
    tokens = torch.tensor([[1, 5, 6, 2], [1, 4, 2, 0], [1, 7, 8, 2], [1, 9, 3, 2]])
    return Batch(features, lengths, tokens, torch.tensor([0, 0, 1, 2]))


def same(there, here):
    """To rounding: kernels of attention and of optimisers differ between devices."""
    torch.testing.assert_close(on_host(there), here, **ANOTHER_DEVICE)


def losses(steps):
    return [number for step in steps for number in (step.loss, step.gradient_norm)]


@pytest.mark.parametrize(
    ("name", "algorithm"),
    [
        *((name, RECIPE.algorithm) for name in MODELS),
        *(("nic", algorithm) for algorithm in ALGORITHMS if algorithm != RECIPE.algorithm),
    ],
)
def test_a_training_step_is_the_cpu_s_and_reads_nothing(name, algorithm):
    recipe = replace(RECIPE, algorithm=algorithm, dropout=0.0)

    def training(move):
        model = move(model_of(name))
        options = {}
        if name == "arnet":
            options = {"reconstructor": move(AutoReconstructor(8).double()), "lambda_": 0.1}
        return CrossEntropyTraining(model, Epoch(*[batch_of(name)] * 3), recipe, **options)

    here = training(lambda model: model)
    expected = list(here.run(1))
    with second_device() as reads:
        there = training(on_second)
        run = there.run(1)
        found = [next(run), next(run)]
        assert len(reads) == 0, reads.by_place
        found += run
        assert len(reads) == 1, reads.by_place  # the epoch's last step
    same(losses(found), losses(expected))
    same(dict(there.model.named_parameters()), dict(here.model.named_parameters()))


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_step_reads_in_float16_alone_where_the_scaler_does(precision):
    batch = batch_of("nic")
    batch = batch._replace(features=batch.features.float())
    with second_device() as reads:
        run = CrossEntropyTraining(
            on_second(model_of("nic").float()),
            Epoch(batch, batch),
            RECIPE,
            computation=Computation(precision=precision),
        ).run(1)
        next(run)
        assert bool(len(reads)) == (precision == "float16"), reads.by_place


def test_a_loss_that_is_not_finite_is_found_before_anything_is_saved():
    good = batch_of("nic")
    bad = good._replace(features=torch.full_like(good.features, torch.nan))
    with second_device():
        training = CrossEntropyTraining(on_second(model_of("nic")), Epoch(good, bad, good), RECIPE)
        run = training.run(1)
        next(run)
        training.state_dict()
        step = next(run)
        for look in (lambda: step.loss, training.state_dict, lambda: next(run)):
            with pytest.raises(NonFiniteError, match=r"loss is nan at step 2 \(epoch 1, batch 2\)"):
                look()


SEARCHES = {
    "greedy": lambda m, x, n, T: greedy(m, x, n, max_length=T),
    "beam search": lambda m, x, n, T: beam_search(m, x, n, beam_size=3, max_length=T),
    "grid beam search": lambda m, x, n, T: grid_beam_search(
        m, x, n, words=[5, 6, 7], beam_size=3, max_length=T
    ),
    "sampling": lambda m, x, n, T: sample(
        m, x, n, num_samples=2, max_length=T, generator=torch.Generator().manual_seed(3)
    ).hypotheses(),
}


def most_reads(num_tokens):
    """Of a search of captions of so many tokens: whether they have ended, and the result."""
    return math.ceil(num_tokens / READ_EVERY)


def captions(found):
    """Tokens of hypotheses, of one for each image or of several."""
    each = [one if isinstance(one, list) else [one] for one in found]
    return [[hypothesis.tokens for hypothesis in one] for one in each]


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("name", BY_TOKEN)
def test_a_search_finds_the_cpu_s_captions(name, search):
    model = model_of(name).eval()
    features, lengths = features_of(name)
    expected = SEARCHES[search](model, features, lengths, 8)
    there = on_second(copy.deepcopy(model))
    with second_device() as reads, torch.no_grad():
        found = SEARCHES[search](there, on_second(features), on_second(lengths), 8)
    assert captions(found) == captions(expected)
    assert len(reads) <= most_reads(8), reads.by_place


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize(("end", "asked"), [(-99.0, 2), (99.0, 1)])
def test_a_search_reads_once_for_eight_tokens(search, end, asked):
    """Captions that never end, and such that end long before it is asked whether they have."""
    model = transformer(V, D, d_model=8, d_ff=8, num_heads=2, max_length=20).double().eval()
    model.vocabulary.bias.data[model.end_id] = end
    features, lengths = features_of("")
    expected = SEARCHES[search](model, features, lengths, 20)
    with second_device() as reads, torch.no_grad():
        there = on_second(copy.deepcopy(model))
        found = SEARCHES[search](there, on_second(features), on_second(lengths), 20)
    assert captions(found) == captions(expected)
    # a grid never stops early
    assert len(reads) == 1 + (asked if search != "grid beam search" else 0) <= most_reads(20)


def test_an_ensemble_and_a_search_from_the_middle_find_the_cpu_s_captions():
    features, lengths = features_of("")
    members = [model_of(name).eval() for name in BY_TOKEN[:2]]
    expected = beam_search(Ensemble(members), features, lengths, beam_size=2, max_length=9)
    torch.manual_seed(0)
    middle = middle_out_captioner(V, D, middle_words=(5, 6), **SMALL).double().eval()
    from_middle = middle_out_beam_search(middle, features, lengths, beam_size=2, max_length=5)
    with second_device() as reads, torch.no_grad():
        data = on_second((features, lengths))
        ensemble = on_second(Ensemble(copy.deepcopy(members)))
        found = beam_search(ensemble, *data, beam_size=2, max_length=9)
        assert captions(found) == captions(expected)
        assert len(reads) <= most_reads(9), reads.by_place
        reads.by_place.clear()
        found = middle_out_beam_search(on_second(middle), *data, beam_size=2, max_length=5)
        assert len(reads) <= most_reads(2 * 5), reads.by_place
    assert [[(h.left, h.middle, h.right) for h in each] for each in found] == [
        [(h.left, h.middle, h.right) for h in each] for each in from_middle
    ]


REFERENCES = [[[5, 6, 2], [5, 7, 2]], [[4, 2]], [[7, 8, 2], [7, 9, 2]]]


def test_a_self_critical_step_is_the_cpu_s_and_reads_little():
    name = next(iter(MODELS))
    recipe = replace(RECIPE, dropout=0.0)

    def run(model, reward):
        images = ImageBatch(*features_of(name), torch.arange(3))
        training = SelfCriticalTraining(
            model, Epoch(images, images), recipe, reward, num_samples=3, max_length=20
        )
        return list(training.run(1))

    here, there = model_of(name), model_of(name)
    expected = run(here, CiderD(REFERENCES))
    with second_device() as reads:
        found = run(on_second(there), on_second(CiderD(REFERENCES)))
    same([step.reward for step in found], [step.reward for step in expected])
    same(losses(found), losses(expected))
    same(dict(there.named_parameters()), dict(here.named_parameters()))
    # a search reads twice; the epoch's last step once
    assert len(reads) <= 2 * len(found) + 1, reads.by_place


@pytest.mark.parametrize("implementation", ["literal", "factored"])
@pytest.mark.parametrize(
    "layer", [StaticExpansion(8, (3, 2)).double(), DynamicExpansion(8, 2).double()]
)
def test_an_expansion_and_its_gradients_are_the_cpu_s(layer, implementation):
    layer.double().implementation = implementation
    x = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    here, there = copy.deepcopy(layer), copy.deepcopy(layer)
    expected = here(x, torch.tensor([5, 2]))
    expected.square().sum().backward()
    with second_device():
        found = on_second(there)(on_second(x), on_second(torch.tensor([5, 2])))
        found.square().sum().backward()
    same(found.detach(), expected.detach())
    same([p.grad for p in there.parameters()], [p.grad for p in here.parameters()])


SWIN = SwinConfiguration(image_size=32, embed_dim=8, depths=(1, 1), num_heads=(1, 2), window_size=4)
OTHERS = {
    "end to end": (
        lambda: build(
            EndToEndConfiguration(**{**PLAIN.to_dict(), "d_feature": 16, "backbone": SWIN})
        ),
        lambda: (torch.ones(1, 3, 32, 32), torch.tensor([[1, 5, 2]])),
    ),
    "sequence classifier": (
        lambda: SequenceClassifier(3, 8, 4),
        lambda: (torch.ones(2, 5, 3), torch.tensor([5, 2])),
    ),
    "auto-reconstructor": (
        lambda: AutoReconstructor(8),
        lambda: (torch.ones(2, 5, 8), torch.tensor([5, 2])),
    ),
    **{
        f"de-noiser, middle out: {middle_out}": (
            lambda m=middle_out: Denoiser([0, 1], middle_out=m, hidden_size=8),
            lambda: (torch.ones(2, 3, 5), torch.full((2, 3), 5), torch.ones(2, 3, 5)),
        )
        for middle_out in (True, False)
    },
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_models_and_their_gradients_are_the_cpu_s(name):
    build_model, inputs = OTHERS[name]
    torch.manual_seed(0)
    here = build_model().double().eval()
    there = copy.deepcopy(here)
    data = [x.double() if x.is_floating_point() else x for x in inputs()]
    expected = here(*data)
    expected.square().sum().backward()
    with second_device():
        found = on_second(there)(*on_second(data))
        found.square().sum().backward()
    same(found.detach(), expected.detach())
    same([p.grad for p in there.parameters()], [p.grad for p in here.parameters()])


def test_values_elsewhere_than_on_a_cpu_are_checked_when_asked():
    name = BY_TOKEN[0]
    features, _ = features_of(name)
    with second_device() as reads, torch.no_grad():
        model = on_second(model_of(name))
        wrong = on_second(torch.tensor([4, 1, 5]))
        model.encode(on_second(features), wrong)
        assert len(reads) == 0
        with checking_values(), pytest.raises(ValueError, match=r"lengths \[4, 1, 5\] must lie"):
            model.encode(on_second(features), wrong)
        with pytest.raises(ValueError, match=r"lengths \[4, 1, 5\] must lie"):
            model.encode(on_second(features), [4, 1, 5])  # the host's


def test_samples_are_drawn_on_the_features_device():
    model = model_of(BY_TOKEN[0]).eval()
    with second_device():
        drawn = sample(on_second(model), *on_second(features_of("")), max_length=9, num_samples=2)
    assert {part.device for part in drawn} == {SECOND}


def test_the_device_refuses_what_a_gpu_would_and_counts_what_stalls_it():
    with second_device() as reads:
        x = torch.ones(3, device=SECOND)
        with pytest.raises(MixedDevicesError):
            x + torch.ones(3)
        assert (x + torch.tensor(1.0)).device == SECOND  # a scalar may be the CPU's
        assert len(reads) == 0
        for number, read in enumerate(
            (
                lambda: x.sum().item(),
                lambda: bool((x > 0).all()),
                lambda: x.tolist(),
                lambda: x[x > 0],
                lambda: x.nonzero(),
                lambda: torch.equal(x, x),
            ),
            start=1,
        ):
            read()
            assert len(reads) == number
        assert (x * 2).cumsum(0).topk(2).values.device == SECOND
        assert len(reads) == 6
