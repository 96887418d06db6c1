"""Where a decoder looks, drawn from records: the weights of detections on a generated scene."""

import io

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from PIL import Image

from benchmarks.data import scenes
from benchmarks.data.scenes.layout import CANVAS
from benchmarks.kinds import Ablation, Attention, Evaluation, Example
from benchmarks.papers.expansionnet_v2.ablation import BASELINE, BOTH
from benchmarks.report.drawings import attention as section
from benchmarks.scoring import overlay
from benchmarks.training.configuration import PRESETS
from benchmarks.verify.tolerances import assert_close
from tests.support.records import record
from torch_impl.models import build

DATA = scenes.make(seed=0, train=12, val=2, test=2)
IMAGE = DATA.splits["test"].image_ids[0]


def looked(row, caption):
    """What a record of an untrained model of the row holds."""
    sizes = dict(zip(("encoder", "decoder"), row.split(" | "), strict=True))
    torch.manual_seed(0)
    model = build(PRESETS["scenes"].but(**sizes).configuration(DATA)).eval()
    example = Example(image=IMAGE, caption=caption, reference="b")
    return model, overlay.attention(model, DATA, example, "test")


def record_of(row, seed, held):
    return record(
        Ablation,
        {"CIDEr-D": 1.0},
        row=row,
        key=f"{row}{seed}",
        n=1,
        seeds=[seed],
        signature="signature",
        beam_size=3,
        cider_d=[0.1],
        examples=[Example(image=IMAGE, caption="a", reference="b")],
        attention=held,
    )


@settings(max_examples=20)
@given(st.lists(st.sampled_from([*DATA.vocabulary.words, "unk"]), min_size=1, max_size=6))
def test_a_record_holds_each_head_s_weights_of_each_word(words):
    model, held = looked(BOTH, " ".join(words))
    assert held.words == words
    features = DATA.splits["test"].store.features(IMAGE)
    assert len(held.weights) == model.configuration.num_heads
    tokens, rows = DATA.vocabulary.encode(words), torch.from_numpy(features)
    for head, kept in enumerate(held.weights):
        of_head = overlay.looks(model, rows, tokens, head)[: len(words)].tolist()
        assert kept == [[round(weight, 4) for weight in of_word] for of_word in of_head]


@given(
    st.lists(
        st.tuples(st.integers(0, CANVAS - 1), st.integers(0, CANVAS - 1), st.integers(0, CANVAS)),
        min_size=1,
        max_size=6,
    ),
    st.data(),
)
def test_the_heat_of_a_pixel_is_the_weight_of_the_boxes_that_cover_it(boxes, data):
    weights = [data.draw(st.floats(0, 1)) for _ in boxes]
    found = section.heat(boxes, weights)
    y, x = np.mgrid[:CANVAS, :CANVAS]
    covering = [
        weight * (np.maximum(abs(x - cx), abs(y - cy)) <= half)
        for (cx, cy, half), weight in zip(boxes, weights, strict=True)
    ]
    assert_close(found, sum(covering))


def test_both_figures_are_drawn_from_records_that_hold_weights_and_else_left_out():
    made = [
        record_of(row, seed, looked(row, f"ball {seed}")[1])
        for seed in (1, 0)
        for row in (BASELINE, BOTH)
    ]
    (both,), (by_head,) = section.of_both(made, {}), section.of_a_head(made, {})
    assert f">{BASELINE}<" in both.svg and f">{BOTH}<" in both.svg
    heads = len(made[0].details.attention.weights)
    assert all(f">head {head}<" in by_head.svg for head in range(heads))
    for figure in (both, by_head):  # of the first seed
        assert ">ball<" in figure.svg and ">0<" in figure.svg and ">1<" not in figure.svg
    assert not section.of_both(made[1:2], {}) and section.of_a_head(made[1:2], {})
    bare = [record_of(row, 0, None) for row in (BASELINE, BOTH)]
    silent = [record_of(row, 0, looked(row, "")[1]) for row in (BASELINE, BOTH)]
    for older in (bare, silent):
        assert not section.of_both(older, {}) and not section.of_a_head(older, {})


def test_other_weights_give_another_drawing():
    held = looked(BOTH, "ball")[1]
    other = [[of_word[::-1] for of_word in of_head] for of_head in held.weights]
    drawn = [
        section.of_a_head([record_of(BOTH, 0, structs.replace(held, weights=weights))], {})[0].svg
        for weights in (held.weights, held.weights, other)
    ]
    assert drawn[0] == drawn[1] != drawn[2]


@given(st.integers(1, 7), st.integers(1, 40), st.integers(1, 40))
def test_the_heat_of_a_photograph_s_pixel_is_the_weight_of_its_cell(side, height, width):
    weights = np.arange(side * side, dtype=float)
    found = section.grid(weights, (height, width))
    for y, x in np.ndindex(height, width):
        assert found[y, x] == weights[y * side // height * side + x * side // width]


def evaluated(row, held, status="other data"):
    """A record of `captionbench evaluate`."""
    given = {"beam_size": 3, "cider_d": [0.1], "attention": held, "signature": "signature"}
    data = {"name": "photographs"}
    return record(Evaluation, {"CIDEr-D": 1.0}, row=row, key=row, n=1, seeds=[0],
                  status=status, data=data, **given)  # fmt: skip


def test_a_photograph_is_drawn_where_it_is_at_hand_and_its_weights_wherever_they_are_a_grid():
    held = Attention(image=7, words=["a", "ball"], weights=[[[0.1] * 9, [0.0] * 8 + [1.0]]] * 2)
    made = [evaluated(row, held) for row in (BASELINE, BOTH)]
    buffer = io.BytesIO()
    Image.new("RGB", (30, 20), "white").save(buffer, "JPEG")
    for draw in (section.of_both, section.of_a_head):
        (bare,), (shown,) = draw(made, {}), draw(made, {7: buffer.getvalue()})
        assert ">ball<" in bare.svg and bare.svg != shown.svg
        assert bare.name.endswith("photographs") and {r.key for r in shown.records} <= {
            r.key for r in made
        }
    oblong = Attention(image=7, words=["a"], weights=[[[0.1] * 8]])
    for others in (
        [evaluated(row, oblong) for row in (BASELINE, BOTH)],
        [evaluated(row, held, "embedded") for row in (BASELINE, BOTH)],
    ):
        assert not section.of_both(others, {}) and not section.of_a_head(others, {})
