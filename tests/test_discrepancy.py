"""Discrepancy of any captioner: the oracle's distances of its states, 0 from itself, no padding."""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from benchmarks import records
from benchmarks.cli.main import main
from benchmarks.data import CaptionData, Split, scenes
from benchmarks.data.scenes import motion
from benchmarks.data.vocabulary import SPECIAL_TOKENS, Vocabulary
from benchmarks.errors import InputError
from benchmarks.papers.arnet import captions as arnet
from benchmarks.papers.arnet import discrepancy as experiment
from benchmarks.papers.middle_out import captions as middle_out
from benchmarks.scoring import discrepancy
from benchmarks.scoring.discrepancy import CENTROID, IMAGES, POINTS, REFERENCES
from benchmarks.verify import strategies
from benchmarks.verify.tolerances import DIFFERENCES, assert_close
from reference import auto_reconstructor as oracle
from tests.support.covers import covers
from tests.support.pages import report as report_of
from tests.support.parity import load, numpy, tensor
from tests.support.tolerances import KEPT
from torch_impl import models
from torch_impl.decoding.middle_out import middle_out_beam_search
from torch_impl.decoding.search import beam_search
from torch_impl.middle_out import interleave

WORDS = ("a", "b", "c", "d", "e")
SIZES = {"vocabulary_size": len(SPECIAL_TOKENS) + len(WORDS), "d_feature": 3, "max_length": 7}
MIXERS = {**SIZES, "d_model": 4, "d_ff": 5, "num_heads": 2}
LSTMS = {**SIZES, "d_embedding": 4, "hidden_size": 4}
FAMILIES = {
    "nic": partial(models.nic, **LSTMS),
    "attentive": partial(models.attentive_nic, **LSTMS),
    "read-only": partial(models.read_only_nic, **LSTMS),
    "self-attentive": partial(models.sequence_to_sequence, **LSTMS, self_attention="dual"),
    "transformer": partial(models.transformer, **MIXERS),
    "aoa": partial(models.transformer_aoa, **MIXERS),
    "expansion": partial(models.expansionnet_v2, **MIXERS, groups=(2, 3), num_expansions=2),
    **{
        f"middle-out, {first} first": partial(
            models.middle_out_captioner, **LSTMS, first=first, middle_words=(4, 6)
        )
        for first in ("left", "right")
    },
}
OPTIONS = {"beam_size": 2, "max_length": 6}


@dataclass(frozen=True)
class Double:
    """Features in float64, as nobody keeps them: to hold models to the float64 rule."""

    arrays: dict[int, np.ndarray]
    d_feature: int = 3
    fingerprint: str = "drawn"

    @property
    def image_ids(self):
        return list(self.arrays)

    def __len__(self):
        return len(self.arrays)

    def features(self, image_id):
        return self.arrays[image_id]


@st.composite
def cases(draw):
    """A captioner of any family, and two to five images of ragged features and captions."""
    generator = draw(strategies.generators())
    model = FAMILIES[draw(st.sampled_from(sorted(FAMILIES)))]().eval()
    load(model, generator)
    with torch.no_grad():
        for name, bias in model.named_parameters():
            if name in ("vocabulary.bias", "vocabulary_b"):
                bias[..., model.pad_id] = -100  # padding is never predicted
    ids = list(range(draw(st.integers(2, 5))))
    caption = st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join)
    several = st.lists(caption, min_size=draw(st.integers(1, 2)), max_size=3)
    references = {i: draw(several) for i in ids}
    arrays = {i: generator.standard_normal((draw(st.integers(1, 4)), 3)) for i in ids}
    targets = None
    if sides(model) == 2:
        half = st.lists(st.integers(4, 8), max_size=4).map(lambda words: [*words, model.end_id])
        caption = st.builds(interleave, half, st.integers(4, 8), half, st.just(model.pad_id))
        targets = {i: draw(st.lists(caption, min_size=1, max_size=2)) for i in ids}
    split = Split(ids, references, Double(arrays), targets)
    return model, CaptionData("drawn", "", Vocabulary(WORDS), {"test": split})


def sides(model):
    """How many decoders take turns."""
    return getattr(model.configuration, "sides", 1)


def says(model, features):
    """An image's own caption, in the order in which it is generated."""
    if sides(model) == 1:
        ((own,),) = beam_search(model, features, **OPTIONS)
        assume(model.pad_id not in own.tokens)
        return own.tokens
    ((halves,),) = middle_out_beam_search(model, features, **OPTIONS)
    both = halves.left, halves.right
    first, second = both if model.configuration.first == "left" else both[::-1]
    return interleave(first, halves.middle, second, model.pad_id)


def alone(model, data, image, caption):
    """The last state of one image's caption, or its two sides' last: no batch, no padding."""
    memory = model.encode(tensor(data.splits["test"].store.features(image))[None])
    with torch.no_grad():
        states = numpy(model.states(torch.tensor([caption[:-1]]), memory))[0]
    P = sides(model)
    # the sides in turn: the last of each that is followed by a token of its own
    given = [[t for t in range(p, len(states), P) if caption[t + 1]] for p in range(P)]
    return np.concatenate([states[of[-1]] for of in given])


@covers(arnet=[10, 11, 12])
@settings(max_examples=15)
@given(cases(), st.integers(1, 6))
def test_distances_of_a_batch_are_the_oracle_s_of_each_image_alone(case, batch_size):
    model, data = case
    found = discrepancy.measure(model, data, "test", batch_size=batch_size, **OPTIONS)
    split = data.splits["test"]
    states = {"U": [], "V": [], "second": []}
    for image, texts in split.references.items():
        own = says(model, tensor(split.store.features(image))[None])
        true = [data.vocabulary.encode(text.split())[:6] for text in texts]
        if split.targets is not None:
            true = split.targets[image]
        captions = {"U": true[0], "V": own} | ({"second": true[1]} if true[1:] else {})
        for name, caption in captions.items():
            states[name].append(alone(model, data, image, caption))
    U, V = (np.array(states[name]) for name in "UV")
    expected = {
        CENTROID: oracle.mean_centroid_distance(U, V),
        POINTS: oracle.point_wise_distance(U, V),
        IMAGES: oracle.point_wise_distance(U, np.roll(U, 1, 0)),
    }
    if len(states["second"]) == len(U):
        expected[REFERENCES] = oracle.point_wise_distance(U, np.array(states["second"]))
    assert found.values.keys() == expected.keys()
    for name, value in expected.items():
        assert_close(found.values[name] + 1, value + 1, name)


class Spelled:
    """Token ids as text, so that any token can stand in a reference."""

    def tokenise(self, caption):
        return caption.split()

    def encode(self, tokens):
        return list(map(int, tokens))


@settings(max_examples=20)
@given(cases())
def test_a_model_that_says_what_people_say_is_at_no_distance(case):
    """References are its own captions: what it reads free-running is what the teacher says."""
    model, data = case
    split, references = data.splits["test"], {}
    for image in split.image_ids:
        own = says(model, tensor(split.store.features(image))[None])
        references[image] = [" ".join(map(str, own))]
    targets = None
    if split.targets is not None:
        targets = {i: [list(map(int, text.split()))] for i, (text,) in references.items()}
    split = replace(split, references=references, targets=targets)
    same = replace(data, vocabulary=Spelled(), splits={"test": split})
    found = discrepancy.measure(model, same, "test", **OPTIONS)
    assert torch.equal(found.training, found.inference)
    for name in (CENTROID, POINTS):
        assert_close(found.values[name] + 1, 1, name)


@settings(max_examples=30)
@given(strategies.generators(), st.integers(2, 6), st.integers(2, 4))
def test_shares_have_the_distance_for_a_mean_and_say_where_weights_take_it(generator, N, d):
    U, V = generator.standard_normal((2, N, d)) + 1
    found = discrepancy.LastStates(tensor(U), tensor(V), None)
    for name, shares in found.shares.items():
        assert_close(np.mean(shares), found.values[name], name)

    def weighted(weights):
        return oracle.cosine_distance(weights @ U, weights @ V)

    even, step = np.full(N, 1 / N), 1e-6
    shares = np.array(found.shares[CENTROID])
    for image in range(N):
        towards = np.eye(N)[image] - even
        slope = (weighted(even + step * towards) - weighted(even - step * towards)) / (2 * step)
        assert abs(slope - (shares[image] - shares.mean())) <= DIFFERENCES * abs(shares).max()


def test_two_sides_do_not_read_from_left_to_right():
    model = models.middle_out_captioner(9, 3, d_embedding=2, hidden_size=2)
    with pytest.raises(InputError, match="of two sides reads captions from the middle, and those"):
        discrepancy.measure(model, scenes.make(0, 1, 1, 2), "test", **OPTIONS)


@pytest.fixture
def quick(monkeypatch):
    """Every row, of models that learn nothing in a second."""
    usual, of_two = experiment.FORMS["scenes"], middle_out.FORMS["scenes"]

    def short(stage):
        return stage.but(epochs=1, batch_size=20, validate_every=1)

    layers = {f"num_{half}coder_layers": 1 for half in ("en", "de")}
    families = experiment.Families(
        usual.training.lstms.each(short).but(d_embedding=8, hidden_size=8),
        usual.training.mixers.each(short).but(d_model=8, d_ff=8, num_heads=2, **layers),
    )
    made = scenes.make(seed=0, train=12, val=2, test=6)
    form = replace(usual, load=lambda _: made, training=families)
    monkeypatch.setitem(experiment.FORMS, "scenes", form)
    two = replace(
        of_two.training,
        decoder=of_two.training.decoder.each(short).but(d_embedding=8, hidden_size=8),
        classifier=replace(of_two.training.classifier, epochs=1),
    )
    clips = motion.make(seed=0, train=12, val=2, test=6)
    form = replace(of_two, load=lambda _: clips, training=two)
    monkeypatch.setitem(middle_out.FORMS, "scenes", form)


def test_every_row_is_trained_once_and_stands_in_the_report(quick, tmp_path, capsys):
    out = tmp_path / "records.jsonl"
    words = ["reproduce", "arnet", "--table", "discrepancy", "--work", str(tmp_path / "work")]
    rows = ["NIC with att", "LSTM", "static:64", "Middle-Out + Attention + "]
    command = [*words, "--out", str(out), "--seeds", "1", "--only", *rows]
    assert main(command) == 0
    made = records.read(out)
    chosen = [row for row in experiment.ROWS if row.startswith(tuple(rows))]
    assert sorted((r.what.row, r.seeds) for r in made) == sorted((row, [0]) for row in chosen)
    for record in made:
        for name, shares in record.details.shares.items():
            assert len(shares) == record.n == 6
            assert np.mean(shares) == pytest.approx(record.values[name], **KEPT)
        regularised = [stage["lambda_"] for stage in record.details.stages]
        if record.what.row in experiment.MIDDLE_OUT:
            assert regularised == [0] and record.data.name == "moving scenes, 64 units"
        else:
            assert regularised == [0, arnet.LAMBDA if "ARNet" in record.what.row else 0]
    assert main(command) == 0
    assert records.read(out) == made
    files = report_of(made)
    tables = [text for name, text in files.items() if "table-arnet-discrepancy-" in name]
    assert "scenes, test split, 6 cases, beam 3" in tables[0]
    lines = [
        line.split(" | ")[0].strip("| ").replace("\\", "") for line in "".join(tables).splitlines()
    ]
    assert sorted(row for row in lines if row in experiment.ROWS) == sorted(chosen)


def test_a_row_differs_from_its_baseline_by_lambda_alone():
    data = scenes.make(0, 2, 1, 2)
    for name, form in experiment.FORMS.items():
        for row in experiment.REGULARISED:
            with_it = row + experiment.ARNET
            one, other = (experiment.training(form, r) for r in (row, with_it))
            assert one.configuration(data) == other.configuration(data), name
            (first, second), (same, changed) = (t.stages.values() for t in (one, other))
            assert first == same and replace(changed, lambda_=0.0) == second != changed
