"""Drawings show the names in data as they are."""

from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest

from benchmarks import figures
from benchmarks.figures import Panel

NAME = "a$x^{$b"
DRAWN = {
    "dots": lambda: figures.dots({NAME: [1, 2], "b": [3]}, NAME, 2.0),
    "narrow dots": lambda: figures.dots({NAME: [1, 2]}, NAME, narrow=True),
    "forest": lambda: figures.forest({NAME: {NAME: 1, "b": 30}}, NAME, ["b"]),
    "forest beside": lambda: figures.forest({NAME: {"b": 30}}, NAME, beside=True),
    "against targets": lambda: figures.against_targets(
        {NAME: (2.0, {NAME: ("met", SimpleNamespace(value=3, low=2, high=4))})}, NAME
    ),
    "curves": lambda: figures.curves({NAME: ([1, 8], [2, 9])}, NAME, "y", log_x=True, log_y=True),
    "bars": lambda: figures.bars({NAME: 1.0, "b": 2.0}, NAME),
    "areas": lambda: figures.areas({NAME: 3.0}, ("rest", 1.0)),
    "sequences": lambda: figures.sequences({NAME: {NAME: [1.0, 2.0]}}, NAME),
    "scatter": lambda: figures.scatter({NAME: [[(0, 1)], [(1, 0)]]}, [NAME, "b"]),
    "overlays": lambda: figures.overlays(
        np.zeros((2, 2, 3), np.uint8), {NAME: [(NAME, np.ones((2, 2)))]}
    ),
    "panels": lambda: figures.panels(
        [[Panel(NAME, {NAME: ([1, 8], [1, 8], [1, 8], [1, 8])}, {}, NAME, "ms")]]
    ),
}


def shown(svg):
    """The figure's texts."""
    return "".join(ElementTree.fromstring(svg).itertext())


@pytest.mark.parametrize("draw", DRAWN.values(), ids=DRAWN)
def test_a_dollar_in_a_name_is_no_formula(draw):
    assert NAME in shown(draw())


@pytest.mark.parametrize("name", ["curves", "panels"])
def test_powers_on_a_logarithmic_axis_are_set(name):
    assert "mathdefault" not in shown(DRAWN[name]())
