"""Overlays: where a model looks for each word, and the picture that shows it."""

import io

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from benchmarks.scoring import overlay
from benchmarks.verify import strategies
from benchmarks.verify.tolerances import assert_close
from torch_impl.models import Captioner, Configuration


@settings(max_examples=4)
@given(st.data(), st.sampled_from((1, 3, 6)), st.integers(1, 4), strategies.generators())
def test_an_overlay_has_a_panel_for_each_word(data, words, side, generator):
    size = data.draw(st.integers(1, 500)), 40
    weights = torch.from_numpy(generator.dirichlet(np.ones(side * side), words))
    text = [data.draw(st.sampled_from(["dog", "$x", "ein_Hund", "été"])) for _ in range(words)]
    drawn = {
        colour: overlay.draw(Image.new("RGB", size, colour), text, weights)
        for colour in ("red", "blue")
    }
    assert drawn["red"] != drawn["blue"], "the picture can be seen"
    with Image.open(io.BytesIO(drawn["red"])) as image:
        columns = min(overlay.COLUMNS, words + 1)
        assert image.width == round(100 * overlay.PANEL * columns)
    if side > 1:
        weights[-1] = weights[-1].flip(-1)
        assert overlay.draw(Image.new("RGB", size, "red"), text, weights) != drawn["red"]
    with pytest.raises(ValueError, match="expected a square grid"):
        overlay.draw(Image.new("RGB", size), text, torch.ones(words, side * side + 2))


@given(strategies.configurations(), st.data(), strategies.generators())
def test_where_a_model_looks_is_a_distribution_that_later_words_do_not_change(
    fields, data, generator
):
    model = Captioner(Configuration(**fields)).double().eval()
    c = model.configuration
    rows = generator.standard_normal((data.draw(st.integers(1, 9)), c.d_feature))
    tokens = generator.integers(0, c.vocabulary_size, data.draw(st.integers(2, 6))).tolist()
    features = torch.from_numpy(rows)
    weights = overlay.looks(model, features, tokens)
    assert_close(weights.sum(-1), np.ones(len(tokens) - 1))
    by_head = [overlay.looks(model, features, tokens, h) for h in range(c.num_heads)]
    assert_close(torch.stack(by_head).mean(0), weights)
    prefix = overlay.looks(model, features, tokens[:2])
    assert_close(weights[:1], prefix)
    with pytest.raises(ValueError, match=f"head is {c.num_heads}, expected 0 to"):
        overlay.looks(model, features, tokens, c.num_heads)
