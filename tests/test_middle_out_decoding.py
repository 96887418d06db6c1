"""Beam search from the middle outwards: the oracle, exhaustive search, its own rules."""

from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.verify.tolerances import assert_close
from reference import middle_out_decoding as oracle
from tests.support.covers import covers
from tests.support.middle_out import captions, encoded, sides, turned
from torch_impl.decoding.middle_out import middle_out_beam_search
from torch_impl.middle_out import interleave
from torch_impl.models import middle_out_captioner, sequence_to_sequence

CASES = captions(middle_out=True)
EITHER = captions(reads_middle_word=False)


def oracle_model(case, b):
    kind = case.model.configuration.self_attention
    # a side alone is the right one
    parameters = {k.replace("decoder.", "right."): v for k, v in case.parameters.items()}
    return oracle.word_model(*encoded(case, b), parameters, kind, sides(case.model))


def middles(case):
    """A word for each source that is no special token; the start token where there is one side."""
    if not case.model.configuration.middle_out:
        return [case.model.start_id] * len(case.captions)
    return [max(middle, 3) for _, middle, _ in case.captions]


def search(case, **options):
    given = middles(case) if case.model.configuration.middle_out else None
    options = {"beam_size": 2, "max_length": 4, "middle": given, **options}
    return middle_out_beam_search(case.model, case.features, case.lengths, **options)


def assert_same(found, expected):
    tokens = [(h.middle, tuple(h.left), tuple(h.right)) for h in found]
    assert tokens == [(h.middle, h.left, h.right) for h in expected]
    for ours, theirs in zip(found, expected, strict=True):
        assert_close(ours.log_probs, theirs.log_probs, "log-probabilities")
        assert_close(ours.score, theirs.score, "score")


@covers(middle_out=[7])
@settings(max_examples=25)
@given(EITHER, st.integers(1, 4), st.integers(2, 5))
def test_it_is_the_readable_search(case, beam_size, max_length):
    """From the middle, and from the left where there is one side."""
    end, options = case.model.end_id, {"beam_size": beam_size, "num_return": beam_size}
    options["side_order"] = sides(case.model)
    found = search(case, max_length=max_length, beam_size=beam_size, num_return=beam_size)
    for b, middle in enumerate(middles(case)):
        expected = oracle.beam_search(
            oracle_model(case, b), middle, end=end, max_length=max_length, **options
        )
        assert_same(found[b], expected)


@settings(max_examples=25)
@given(EITHER, st.integers(1, 4), st.integers(2, 5), st.sampled_from([0.0, 3.0]))
def test_steps_after_the_end_change_nothing(case, beam_size, max_length, bias):
    with torch.no_grad():
        case.model.vocabulary_b[..., case.model.end_id] += bias
    options = {"max_length": max_length, "beam_size": beam_size, "num_return": beam_size}
    expected = search(case, **options)
    with patch("torch_impl.decoding.middle_out.should_check_end", return_value=False):
        assert search(case, **options) == expected


@settings(max_examples=25)
@given(CASES, st.integers(1, 5), st.integers(2, 4))
def test_ties_go_to_the_earlier_hypothesis_then_to_the_lower_id(case, beam_size, max_length):
    """Every word has the same probability."""
    with torch.no_grad():
        case.model.vocabulary_W.zero_()
        case.model.vocabulary_b.zero_()
    V, options = case.model.configuration.vocabulary_size, {"num_return": beam_size}
    options |= {"beam_size": beam_size, "max_length": max_length}
    order = sides(case.model)

    def uniform(halves, side):
        return torch.zeros(V, dtype=torch.float64).log_softmax(-1).numpy()

    for b, found in enumerate(search(case, **options)):
        expected = oracle.beam_search(
            uniform, middles(case)[b], end=case.model.end_id, side_order=order, **options
        )
        assert_same(found, expected)


@settings(max_examples=25)
@given(CASES, st.integers(1, 3), st.integers(2, 6))
def test_the_middle_word_is_in_the_caption_and_the_score_is_teacher_forced(
    case, beam_size, max_length
):
    """A side that never ends is cut at ``max_length``, the others have their end token."""
    model, end = case.model, case.model.end_id
    found = search(case, beam_size=beam_size, max_length=max_length, num_return=beam_size)
    for b, image in enumerate(found):
        scores = [halves.score for halves in image]
        assert scores == sorted(scores, reverse=True)
        for halves in image:
            assert halves.middle == middles(case)[b] and halves.middle in halves.caption(end)
            assert end not in halves.caption(end)
            for half in (halves.left, halves.right):
                assert half[-1] == end or len(half) == max_length - 1
                assert end not in half[:-1]
            if model.pad_id in (*halves.left, *halves.right):
                continue  # as a word the pad token cannot be told from a hole in given tokens
            first, second = in_turn = turned(model, halves.left, halves.right)
            tokens = interleave(first, halves.middle, second, model.pad_id)
            one = case.features[b : b + 1, : case.lengths[b]]
            log_p = model(one, torch.tensor([tokens]))[0]
            forced = [
                log_p[t, token].item()
                for t, token in enumerate(tokens[1:])
                if t // 2 < len(in_turn[t % 2])
            ]
            assert_close(halves.log_probs, forced)


@settings(max_examples=25)
@given(CASES)
def test_without_a_middle_word_the_classifier_predicts_it(case):
    candidates = case.model.configuration.middle_words
    best = case.model.middle_words(case.features, case.lengths).argmax(-1)
    for b, (halves,) in enumerate(search(case, middle=None)):
        assert halves.middle == candidates[best[b]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"middle": 6}, "middle word 6 is outside a vocabulary of 6 words"),
        ({"middle": -1}, "middle word -1 is outside a vocabulary of 6 words"),
        ({"middle": 2}, "middle word 2 is a special token"),
        ({"middle": "dog"}, "middle is 'dog', expected token ids"),
        ({"middle": True}, "middle is True, expected token ids"),
        ({"middle": [3.7, 4]}, r"middle is \[3.7, 4\], expected token ids"),
        ({"middle": [3]}, "1 middle words for 2 images, expected one each"),
        ({"beam_size": 0}, "beam_size is 0, expected at least 1"),
        ({"num_return": 3}, r"num_return is 3, expected 1 to beam_size \(2\)"),
        ({"max_length": 1}, "max_length is 1, expected at least 2"),
        ({"max_length": 6}, "max_length is 6, the model.s is 5"),
        ({"middle": None}, "middle_words is empty"),
    ],
)
def test_bad_input_is_named(options, message):
    model = middle_out_captioner(6, 2, d_embedding=2, hidden_size=4, max_length=5).eval()
    with pytest.raises(ValueError, match=message):
        middle_out_beam_search(
            model, torch.randn(2, 3, 2), **{"beam_size": 2, "max_length": 4, "middle": 3, **options}
        )


def test_a_word_for_one_side_or_a_model_of_nans_is_refused():
    options = {"beam_size": 1, "max_length": 3, "middle": 3}
    features = torch.randn(1, 2, 2)
    plain = sequence_to_sequence(6, 2, d_embedding=2, hidden_size=4).eval()
    with pytest.raises(ValueError, match="a model of one side begins with the start token"):
        middle_out_beam_search(plain, features, **options)
    model = middle_out_captioner(6, 2, d_embedding=2, hidden_size=4).eval()
    with torch.no_grad():
        model.vocabulary_b.fill_(torch.nan)
    with pytest.raises(ValueError, match="log-probabilities are NaN"):
        middle_out_beam_search(model, features, **options)
