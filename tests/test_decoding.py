"""Decoding: the batched searches are the oracle's loops, ties included."""

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.verify.tolerances import assert_close
from reference import decoding as oracle
from tests.support.tables import (
    END,
    PAD,
    START,
    Table,
    max_lengths,
    one_row,
    oracles,
    plain,
    sizes,
    table_oracle,
    tables,
    teacher_forced,
)
from tests.support.training import CONFIGURATION
from torch_impl.decoding import search as decoding
from torch_impl.models import Captioner, transformer


@given(tables(vocabulary=(3, 4)), st.integers(2, 4))
def test_a_beam_that_holds_every_caption_is_exhaustive(model, max_length):
    width = model[0].shape[-1] ** (max_length - 1)
    found = decoding.beam_search(
        Table(), *model, beam_size=width, max_length=max_length, num_return=width
    )
    for hypotheses, next_log_probs in zip(found, oracles(*model), strict=True):
        everything = oracle.exhaustive_search(
            next_log_probs, start=START, end=END, max_length=max_length
        )
        assert [h.score for h in hypotheses] == [h.score for h in everything]
        assert sorted(plain(hypotheses)) == sorted(plain(everything))


@given(tables(), sizes, max_lengths)
def test_a_hypothesis_score_is_its_teacher_forced_score(model, beam_size, max_length):
    found = decoding.beam_search(
        Table(), *model, beam_size=beam_size, max_length=max_length, num_return=beam_size
    )
    tokens = [[h.tokens for h in hypotheses] for hypotheses in found]
    log_probs, mask = teacher_forced(Table(), *model, tokens)
    for b, next_log_probs in enumerate(oracles(*model)):
        for k, hypothesis in enumerate(found[b]):
            assert log_probs[b, k][mask[b, k]].tolist() == hypothesis.log_probs
            assert log_probs[b, k][~mask[b, k]].eq(0).all()
            expected = oracle.teacher_forced(next_log_probs, hypothesis.tokens)
            assert plain([hypothesis]) == plain([expected])
        assert not mask[b, len(found[b]) :].any()


def test_the_search_stops_when_every_caption_ended_in_the_first_step():
    model, table = one_row(-torch.inf, -torch.inf, -0.5), Table()
    (found,) = decoding.beam_search(table, *model, beam_size=3, max_length=12, num_return=3)
    assert plain(found) == [((START, END), (-0.5,), -0.25)]
    assert table.calls == 1
    assert decoding.greedy(table, *model, max_length=12) == found
    assert table.calls == 2


def test_the_search_stops_when_unfinished_captions_can_no_longer_matter():
    table, unlikely = Table(), one_row(-torch.inf, -9.0, -0.5, -8.0)
    decoding.beam_search(table, *unlikely, beam_size=3, max_length=12)
    assert table.calls == 1
    # the second best is still open
    decoding.beam_search(table, *unlikely, beam_size=3, max_length=12, num_return=2)
    assert table.calls > 2


def test_the_search_continues_while_an_unfinished_caption_may_still_win():
    """Ending at once costs 0.75; going on costs 1.25 once, then nothing: better after 4 tokens."""
    features = torch.full((1, 5, 4), -torch.inf, dtype=torch.float64)
    features[0, 4, [END, 3]] = torch.tensor([-0.75, -1.25], dtype=torch.float64)
    features[0, 1:3, 3] = 0  # the rows of START 3, of START 3 3, ...
    for max_length, best in [(3, [START, END]), (4, [START, 3, 3, 3])]:
        (found,) = decoding.beam_search(Table(), features, beam_size=2, max_length=max_length)
        assert found[0].tokens == best


@given(tables(), sizes, max_lengths, st.data())
def test_steps_after_the_end_change_nothing(model, beam_size, max_length, data):
    """Where reading is dear, a search does not ask at each step whether it has ended."""
    seed, num_return = data.draw(st.integers(0, 99)), data.draw(st.integers(1, beam_size))
    length = {"max_length": max_length}

    def search():
        generator = torch.Generator().manual_seed(seed)
        drawn = decoding.sample(Table(), *model, **length, num_samples=2, generator=generator)
        found = decoding.beam_search(
            Table(), *model, **length, beam_size=beam_size, num_return=num_return
        )
        greedy = decoding.greedy(Table(), *model, **length)
        return [plain(h) for h in found], plain(greedy), drawn

    *expected, asking = search()
    with patch.object(decoding, "should_check_end", return_value=False):
        *found, drawn = search()
    assert found == expected
    T = asking.tokens.shape[-1]
    for name, padding in (("tokens", PAD), ("log_probs", 0), ("mask", False)):
        cut = T if name == "tokens" else T - 1
        part = getattr(drawn, name)
        assert torch.equal(part[..., :cut], getattr(asking, name))
        assert part[..., cut:].eq(padding).all()


def test_a_finished_caption_can_be_pushed_out_of_the_beam_and_a_longer_one_can_win():
    """In the search the sums compete, at the end the sums over the lengths."""
    # the end costs 1 at once; the other word 0.25 a step
    model = one_row(-9.0, -9.0, -1.0, -0.25)
    (found,) = decoding.beam_search(Table(), *model, beam_size=2, max_length=4, num_return=2)
    assert plain(found) == [
        ((START, 3, 3, 3), (-0.25, -0.25, -0.25), -0.1875),
        ((START, END), (-1.0,), -0.5),
    ]
    cheap = one_row(-0.25, -9.0, -1.0, -0.25)
    (found,) = decoding.beam_search(Table(), *cheap, beam_size=2, max_length=4, num_return=2)
    assert [h.tokens for h in found] == [[START, 0, 0, 0], [START, 0, 0, 3]]


MODEL = one_row(-1.0, -1.0, -1.0)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"beam_size": 0}, "beam_size is 0"),
        ({"beam_size": -3}, "beam_size is -3"),
        ({"num_return": 0}, "num_return is 0"),
        ({"num_return": 3}, "num_return is 3, expected 1 to beam_size .2."),
        ({"max_length": 1}, "max_length is 1"),
        ({"max_length": 13}, "max_length is 13, the model's is 12"),
    ],
)
def test_bad_options_of_the_beam_search_are_named(options, named):
    good = {"beam_size": 2, "max_length": 4, "num_return": 1}
    with pytest.raises(ValueError, match=named):
        decoding.beam_search(Table(), *MODEL, **{**good, **options})


@pytest.mark.parametrize("max_length", [1, 13])
def test_bad_lengths_are_named_by_greedy_and_sampling(max_length):
    with pytest.raises(ValueError, match=f"max_length is {max_length}"):
        decoding.greedy(Table(), *MODEL, max_length=max_length)
    with pytest.raises(ValueError, match=f"max_length is {max_length}"):
        decoding.sample(Table(), *MODEL, max_length=max_length, num_samples=1)


def test_other_bad_input_is_named():
    with pytest.raises(ValueError, match="num_samples is 0"):
        decoding.sample(Table(), *MODEL, max_length=4, num_samples=0)
    for shape in ((2, 1, 2), (1, 1, 1), (1, 2)):
        with pytest.raises(ValueError, match=r"expected \(1, K, T\) with at least 2 tokens"):
            decoding.teacher_forced(Table(), *MODEL, torch.full(shape, START))
    with pytest.raises(ValueError, match="max_length is 1"):
        oracle.greedy(table_oracle(np.zeros((1, 3))), start=START, end=END, max_length=1)
    with pytest.raises(ValueError, match="num_return is 2"):
        oracle.beam_search(
            table_oracle(np.zeros((1, 3))),
            start=START,
            end=END,
            beam_size=1,
            max_length=3,
            num_return=2,
        )


def test_log_probabilities_that_are_no_numbers_are_refused():
    model = one_row(-1.0, torch.nan, -1.0)
    with pytest.raises(ValueError, match="NaN"):
        decoding.beam_search(Table(), *model, beam_size=2, max_length=4)
    with pytest.raises(ValueError, match="NaN"):
        decoding.greedy(Table(), *model, max_length=4)


@st.composite
def captioners(draw):
    """A small captioner in float64, features and lengths, NaN in the padding."""
    torch.manual_seed(draw(st.integers(0, 2**32 - 1)))
    encoder = draw(st.sampled_from(["attention", "aoa", "static:3", "static:1,2", "dynamic:2"]))
    decoder = draw(st.sampled_from(["attention", "aoa", "dynamic:2"]))
    sizes = {"vocabulary_size": draw(st.integers(3, 6)), "num_decoder_layers": 2, "max_length": 6}
    model = Captioner(replace(CONFIGURATION, encoder=encoder, decoder=decoder, **sizes))
    lengths = torch.tensor(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    features = torch.randn(len(lengths), int(lengths.max()) + draw(st.integers(0, 2)), 5).double()
    for b, length in enumerate(lengths):
        features[b, length:] = torch.nan
    return model.double().eval(), features, lengths


@given(captioners(), st.integers(1, 5), st.integers(2, 6))
def test_captioners_are_searched_as_one_image_and_one_prefix_at_a_time(case, beam_size, max_length):
    model, features, lengths = case
    options = {"beam_size": beam_size, "max_length": max_length, "num_return": beam_size}
    beams = decoding.beam_search(model, features, lengths, **options)
    single = decoding.greedy(model, features, lengths, max_length=max_length)
    drawn = {"max_length": max_length, "num_samples": 2}
    generator = torch.Generator().manual_seed(7)
    samples = decoding.sample(model, features, lengths, **drawn, generator=generator).hypotheses()
    shape = (len(features), 2, max_length - 1)
    uniforms = torch.rand(shape, dtype=torch.float64, generator=generator.manual_seed(7)).numpy()
    log_probs, mask = teacher_forced(
        model, features, lengths, [[h.tokens for h in hypotheses] for hypotheses in beams]
    )
    for b, length in enumerate(lengths):
        next_log_probs = captioner_oracle(model, features[b, :length])
        ids = {"start": START, "end": END}
        assert_same(beams[b], oracle.beam_search(next_log_probs, **ids, **options))
        greedy = oracle.greedy(next_log_probs, **ids, max_length=max_length)
        assert_same([single[b]], [greedy])
        assert_same(samples[b], [oracle.sample(next_log_probs, u, **ids) for u in uniforms[b]])
        for k, hypothesis in enumerate(beams[b]):
            given_back = log_probs[b, k][mask[b, k]].tolist()
            assert_close(given_back, hypothesis.log_probs)
            assert_close(sum(given_back) / len(hypothesis.tokens), hypothesis.score)


@given(captioners(), st.booleans())
def test_no_images_have_no_captions(case, training):
    model, features, lengths = case
    none = features[:0], lengths[:0]
    model.train(training)
    assert decoding.greedy(model, *none, max_length=4) == []
    assert decoding.beam_search(model, *none, beam_size=2, max_length=4) == []
    assert decoding.sample(model, *none, num_samples=2, max_length=4).hypotheses() == []


def captioner_oracle(model, features):
    def next_log_probs(prefix):
        with torch.no_grad():
            log_p = model(features.unsqueeze(0), torch.tensor([prefix]))[0, -1]
        return np.asarray(log_p)

    return next_log_probs


def assert_same(found, expected):
    assert [tuple(h.tokens) for h in found] == [h.tokens for h in expected]
    for mine, theirs in zip(found, expected, strict=True):
        assert_close(mine.log_probs, theirs.log_probs)
        assert_close(mine.score, theirs.score)


def test_gradients_flow_through_the_forced_score_alone():
    torch.manual_seed(0)
    model = transformer(5, 3, d_model=4, d_ff=4, num_heads=1, max_length=6).double().eval()
    features = torch.randn(2, 3, 3).double()
    captions = [[[START, 3, END], [START, END]], [[START, 4, 4, 3]]]
    log_probs, mask = teacher_forced(model, features, None, captions)
    assert mask.sum(-1).tolist() == [[2, 1], [3, 0]]
    weights = torch.randn(mask.shape).double()
    bias = model.vocabulary.bias
    (gradient,) = torch.autograd.grad((log_probs * weights).sum(), bias)
    alone = torch.zeros_like(gradient)
    for b, k, t in mask.nonzero().tolist():
        caption = captions[b][k]
        log_p = model(features[b : b + 1], torch.tensor([caption[: t + 1]]))[0, -1, caption[t + 1]]
        alone += torch.autograd.grad(log_p, bias)[0] * weights[b, k, t]
    assert_close(gradient, alone)
