"""A step of self-critical training against the oracle, from the samples to the gradient."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.verify import strategies
from benchmarks.verify.tolerances import assert_close
from reference import cider, objectives
from tests.support.parity import load, numpy, tensor
from torch_impl.cider import CiderD
from torch_impl.models import Captioner, Configuration
from torch_impl.training import ImageBatch, SelfCriticalTraining
from torch_impl.training.optimisation import OPTIMISATION_PRESETS
from torch_impl.training.sampling import SAMPLINGS, SamplingComputation
from torch_impl.training.self_critical import self_critical


@st.composite
def captioners(draw):
    """Any pairing, in either mode, without dropout; ragged features."""
    model = Captioner(Configuration(**draw(strategies.configurations())))
    load(model, draw(strategies.generators()))
    images = draw(strategies.tokens(model.configuration.d_feature, kinds=("normal",)))
    return model.train(draw(st.booleans())), tensor(images.x), torch.from_numpy(images.mask)


@given(captioners(), st.integers(2, 4), st.sampled_from(["leave_one_out", "printed"]), st.data())
def test_a_step_is_the_oracle_s_from_the_samples_to_the_gradient(case, num_samples, baseline, data):
    model, features, mask = case
    words = st.lists(st.integers(0, model.configuration.vocabulary_size - 1), max_size=4)
    captions = words.map(lambda caption: [*caption, model.end_id])
    corpus = data.draw(st.lists(st.lists(captions, min_size=1, max_size=3), min_size=1, max_size=4))
    places = st.integers(0, len(corpus) - 1)
    images = [data.draw(places) for _ in features]
    made = self_critical(
        model,
        features,
        mask,
        torch.tensor(images),
        CiderD(corpus),
        num_samples=num_samples,
        max_length=model.max_length,
        baseline=baseline,
        generator=torch.Generator().manual_seed(data.draw(st.integers(0, 99))),
    )
    (gradient,) = torch.autograd.grad(made.loss, model.vocabulary.bias)

    named = [[[str(w) for w in caption] for caption in refs] for refs in corpus]
    losses, gradients = [], []
    for b, hypotheses in enumerate(made.samples.hypotheses()):
        of = [named[images[b]]] * num_samples
        chosen = [[str(w) for w in h.tokens[1:]] for h in hypotheses]
        R = cider.cider_d(chosen, of, corpus=named)
        assert_close(made.rewards[b], R)
        for h, r, baseline_r in zip(hypotheses, R, objectives.baselines(R, baseline), strict=True):
            read = torch.tensor([h.tokens[:-1]])
            log_p = numpy(model(features[b : b + 1], read, mask[b : b + 1])[0])
            y = h.tokens[1:]
            log_p_y = log_p[np.arange(len(y)), y]
            assert_close(h.log_probs, log_p_y)
            losses.append(objectives.self_critical(log_p_y, r, baseline_r))
            of_log_p = np.eye(log_p.shape[1])[y].sum(0) - np.exp(log_p).sum(0)
            gradients.append(objectives.self_critical_gradient(of_log_p, r, baseline_r))
    assert_close(made.loss.detach(), np.mean(losses))
    assert_close(gradient, np.mean(gradients, 0))


def step(model, generator):
    features = torch.ones(2, 3, model.configuration.d_feature)
    reward, images = CiderD([[[3, 4, 2]], [[4, 4, 2]]]), torch.tensor([0, 1])
    options = {"num_samples": 5, "max_length": 6, "generator": generator}
    return self_critical(model, features, None, images, reward, **options)


def test_in_training_mode_samples_and_their_log_probabilities_have_dropout():
    torch.manual_seed(0)
    mixers = {"encoder": "static:3", "decoder": "dynamic:2"}
    reductions = {"encoder_reduction": "linear", "decoder_reduction": "linear"}
    sizes = {"vocabulary_size": 9, "d_feature": 4, "d_model": 8, "d_ff": 8, "num_heads": 2}
    model = Captioner(Configuration(**sizes, **mixers, **reductions, dropout=0.5))
    generator = torch.Generator()
    again, once = (step(model.eval(), generator.manual_seed(0)) for _ in range(2))
    assert once.loss == again.loss
    dropped, redropped = (step(model.train(), generator.manual_seed(0)) for _ in range(2))
    first = (slice(None), slice(None), 0)  # on the same draws
    assert not torch.equal(dropped.samples.log_probs[first], redropped.samples.log_probs[first])
    dropped.loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


def test_what_cannot_be_is_named():
    sizes = {"vocabulary_size": 9, "d_feature": 4, "d_model": 8, "d_ff": 8, "num_heads": 2}
    mixers = {"encoder": "attention", "decoder": "attention"}
    reductions = {"encoder_reduction": "norm", "decoder_reduction": "norm"}
    model = Captioner(Configuration(**sizes, **mixers, **reductions))
    features, images, reward = torch.zeros(1, 3, 4), torch.tensor([0]), CiderD([[[2]]])
    with pytest.raises(ValueError, match="at least 2 samples"):
        self_critical(model, features, None, images, reward, num_samples=1, max_length=4)
    with pytest.raises(ValueError, match="images must lie between 0 and 0"):
        self_critical(model, features, None, images + 1, reward, num_samples=2, max_length=4)
    with pytest.raises(ValueError, match=r"images has shape \(2,\), expected \(1,\)"):
        self_critical(model, features, None, [0, 0], reward, num_samples=2, max_length=4)


class SameImages:
    """Five images, again and again."""

    def __init__(self):
        generator = torch.Generator().manual_seed(1)
        features = torch.randn(5, 3, 4, generator=generator)
        self.batch = ImageBatch(features, torch.full((5,), 3), torch.arange(5))

    def __len__(self):
        return 100

    def epoch(self, epoch, start):
        return iter([self.batch] * (len(self) - start))


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_training_raises_the_reward_of_its_samples(sampling):
    """From nothing: no caption is shown, only what those that were drawn are worth."""
    references = [[[3, 4, 5, 2], [4, 3, 2]], [[5, 6, 7, 2]], [[8, 9, 10, 2]], [[4, 2]], [[9, 3, 2]]]
    sizes = {"vocabulary_size": 11, "d_feature": 4, "d_model": 16, "d_ff": 16, "num_heads": 2}
    layers = {"num_encoder_layers": 1, "num_decoder_layers": 1, "dropout": 0.1}
    mixers = {"encoder": "attention", "decoder": "attention"}
    reductions = {"encoder_reduction": "norm", "decoder_reduction": "norm"}
    torch.manual_seed(0)
    model = Captioner(Configuration(**sizes, **layers, **mixers, **reductions))
    recipe = replace(OPTIMISATION_PRESETS["v2-as-run"], lr=1e-2, warmup=0, anneal=1.0)
    computation = SamplingComputation(sampling=sampling)
    run = SelfCriticalTraining(
        *(model, SameImages(), recipe, CiderD(references)), max_length=6, computation=computation
    )
    rewards = [step.reward or 0.0 for step in run.run(1)]
    assert np.mean(rewards[:10]) < 1
    assert np.mean(rewards[-10:]) > 3


def test_a_training_that_cannot_be_is_named():
    model = Captioner(
        Configuration(9, 4, "attention", "attention", "norm", "norm", d_model=8, num_heads=2)
    )
    given = model, SameImages(), OPTIMISATION_PRESETS["v2-as-run"], CiderD([[[2]]])
    bad = [
        ({"num_samples": 0}, "num_samples is 0, expected at least 1"),
        ({"num_samples": 1}, "at least 2 samples"),
        ({"baseline": "greedy"}, "baseline is 'greedy'"),
        ({"max_length": 1}, "max_length is 1, expected 2 to the model's 74"),
        ({"max_length": 75}, "max_length is 75, expected 2 to the model's 74"),
    ]
    for options, message in bad:
        with pytest.raises(ValueError, match=message):
            SelfCriticalTraining(*given, **options)
