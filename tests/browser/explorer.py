"""The cost explorer prints what Python computes, to the last digit."""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random
from urllib.parse import urlencode

from benchmarks.perf.cases.least_bytes import BYTES
from benchmarks.perf.roofline.devices import described
from benchmarks.report import explorer
from tests.browser import chromium

CONFIGURATIONS = 300


def random_state(random: Random) -> dict[str, object]:
    """Sizes of all magnitudes, attention as often as an expansion."""

    def size(least: int, most: int) -> int:
        return max(least, round(most ** random.random()))

    groups = [size(1, 2000) for _ in range(random.choice((0, 1, 1, 2, 5)))]
    sizes = {known.name: size(max(known.least, 1), 5000) for known in explorer.SIZES}
    return {
        "G": groups,
        **sizes,
        "N_E": random.choice((0, sizes["N_E"])),
        "captions": random.choice(("MS-COCO", "T")),
        "precision": random.choice(list(BYTES)),
        "form": random.choice(explorer.FORMS),
        "device": random.choice(list(described())),
    }


def texts(state: dict[str, object]) -> dict[str, str]:
    """What the page prints, as Python computes it."""
    found = explorer.costs(state)
    return {name: explorer.printed(of, explorer.unit_of(name)) for name, of in found.items()}


def same_digits(site: Path, random: Random) -> str:
    """Random configurations, all in one load of the page."""
    states = [random_state(random) for _ in range(CONFIGURATIONS)]
    states += [preset["state"] for preset in explorer.presets()]
    printed = "Object.entries(costs(state)).map(([name, n]) => [name, printed(n, unitOf(name))])"
    expression = f"JSON.stringify({json.dumps(states)}.map(state => Object.fromEntries({printed})))"
    found = json.loads(chromium.evaluate(site / "explorer.html", expression))
    numbers = 0
    for state, shown in zip(states, found, strict=True):
        assert shown == texts(state), state
        numbers += len(shown)
    return f"{len(states)} configurations, {numbers} numbers"


def address_holds_the_state(site: Path, random: Random) -> str:
    """A page opened at an address shows that state's numbers, and a wrong one an error."""
    for _ in range(3):
        state = random_state(random)
        address = urlencode({**state, "G": ",".join(map(str, state["G"]))})
        document, errors = chromium.load(site / "explorer.html", f"#{address}")
        assert not errors, errors
        shown = dict(re.findall(r'data-cost="([^"]+)"[^>]*>([^<]*)<', document))
        expected = texts(state)
        for name, text in shown.items():
            assert text == expected.get(name, f"no {state['precision']}"), (name, state)
        assert set(expected) <= set(shown)
    document, _ = chromium.load(site / "explorer.html", "#L=none&T=1")
    assert "L, T: expected a whole number" in document
    return "3 addresses, and a wrong one"


CHECKS = (same_digits, address_holds_the_state)
