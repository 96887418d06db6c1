"""The cost explorer's numbers are those of the closed forms; `tests.browser` checks its script."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.perf.flops import parameters, table_vi
from benchmarks.perf.flops.closed_forms import Length
from benchmarks.perf.roofline.devices import load_specs
from benchmarks.report import explorer
from benchmarks.verify.tolerances import SUMS

sizes = st.integers(1, 3000)
states = st.fixed_dictionaries(
    {
        **{size.name: st.integers(max(size.least, 1), 3000) for size in explorer.SIZES},
        "N_E": st.integers(0, 300),
        "G": st.lists(sizes, max_size=5),
        "captions": st.sampled_from(("MS-COCO", "T")),
        "precision": st.sampled_from(("float32", "bfloat16")),
    }
)


@given(states)
def test_costs_are_those_of_the_model(state):
    encoder = "static:" + ",".join(map(str, state["G"])) if state["G"] else "attention"
    decoder = f"dynamic:{state['N_E']}" if state["N_E"] else "attention"
    model = table_vi.configuration(
        encoder,
        decoder,
        d_model=state["d"] * state["heads"],
        d_ff=state["ff"],
        num_heads=state["heads"],
        num_encoder_layers=state["layers"],
        num_decoder_layers=state["layers"],
        vocabulary_size=state["V"] + 2,
        d_feature=state["features"],
    )
    T = table_vi.RECORDED if state["captions"] == "MS-COCO" else Length.of([state["T"]])
    _, count = table_vi.count(model, T, features=state["L"], batch=state["batch"])
    divisible = state | {"d": model.d_model, "V": model.vocabulary_size}
    found = explorer.costs(divisible)
    images = table_vi.IMAGES
    for name, expected in {
        "paper literal": count.paper,
        "paper factored": count.paper_factored,
        "macs literal": count.macs / images,
        "macs factored": count.factored / images,
        "flops": count.flops / images,
    }.items():
        assert found[name] == pytest.approx(expected, rel=SUMS), name
    for name, device in load_specs().items():
        assert (f"{name} literal" in found) == (state["precision"] in device.peak)
        if f"{name} literal" in found:
            assert 0 < found[f"{name} factored"] <= found[f"{name} literal"]


def test_every_row_of_table_vi_is_a_preset():
    lines = table_vi.table_vi(table_vi.RECORDED)
    found = explorer.presets()
    assert [preset["name"] for preset in found] == [line.printed for line in lines]
    for preset, line in zip(found, lines, strict=True):
        assert preset["paper"] == line.paper
        ours = explorer.costs(preset["state"])
        assert ours["paper literal"] == pytest.approx(line.ours, rel=SUMS)
        assert ours["paper factored"] == pytest.approx(line.factored, rel=SUMS)
    assert found[-1]["state"] == explorer.DEFAULTS
    assert explorer.costs(explorer.DEFAULTS)["parameters"] == parameters.counted()["captioner"]


@given(st.floats(1e-3, 1e25), st.sampled_from(sorted(explorer.PREFIXES)))
def test_a_number_is_printed_to_its_digits(value, unit):
    scale = 1e9 if unit == "s" else 1
    text = explorer.printed(value / scale, unit)
    digits = re.match(r"[\d.]+", text)[0]
    place = explorer.PREFIXES[unit].index(text[len(digits) :])
    assert float(digits) <= 1000
    assert math.isclose(
        float(digits) * 1000**place, value, rel_tol=0.6 * 10 ** (1 - explorer.DIGITS)
    )
    assert len(digits.replace(".", "").lstrip("0")) in (explorer.DIGITS, explorer.DIGITS + 1)
