"""Grid beam search of a captioner, and bad input; that it is the oracle's grid, the kit tests."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.verify.tolerances import assert_close
from tests.support.tables import END, Table
from torch_impl.decoding.grid_beam import grid_beam_search
from torch_impl.models import sequence_to_sequence


@settings(max_examples=100)
@given(st.integers(0, 99), st.integers(1, 3), st.integers(2, 5))
def test_a_captioner_s_own_grid_has_the_words_and_their_probabilities(seed, beam_size, max_length):
    torch.manual_seed(seed)
    model = sequence_to_sequence(6, 2, d_embedding=3, hidden_size=4, max_length=5).double().eval()
    features = torch.randn(2, 3, 2, dtype=torch.float64)
    options = {"beam_size": beam_size, "max_length": max_length}
    for b, (best,) in enumerate(grid_beam_search(model, features, words=[3, 4], **options)):
        assert 3 + b in best.tokens
        tokens = torch.tensor([best.tokens])
        log_p = model(features[b : b + 1], tokens[:, :-1]).gather(-1, tokens[:, 1:, None])
        assert_close(best.log_probs, log_p.detach().flatten().numpy())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"words": [3]}, "1 words for 2 images, expected one each"),
        ({"words": [3, END]}, "word 2 is the end token, expected a word"),
        ({"words": [3, 6]}, r"words \[3, 6\] are not all in a vocabulary of 6 words"),
        ({"words": [-1, 3]}, r"words \[-1, 3\] are not all in"),
        ({"beam_size": 0}, "beam_size is 0, expected at least 1"),
        ({"num_return": 3}, r"num_return is 3, expected 1 to beam_size \(2\)"),
        ({"max_length": 1}, "max_length is 1, expected at least 2"),
        ({"max_length": 13}, "max_length is 13, the model.s is 12"),
    ],
)
def test_bad_input_is_named(options, message):
    features = torch.zeros(2, 1, 6)
    options = {"words": [3, 4], "beam_size": 2, "max_length": 4, **options}
    with pytest.raises(ValueError, match=message):
        grid_beam_search(Table(), features, **options)
