"""The cost explorer prints what Python computes, to the last digit."""

from __future__ import annotations

import json
from random import Random
from urllib.parse import parse_qsl, urlencode, urlsplit

from playwright.sync_api import Page

from benchmarks.perf.cases.least_bytes import BYTES
from benchmarks.perf.roofline.devices import load_specs
from benchmarks.report import explorer
from tests.browser.chromium import Site

CONFIGURATIONS = 300


def random_state(random: Random) -> dict[str, object]:
    """Sizes of all magnitudes, attention as often as an expansion."""

    def size(least: int, most: int) -> int:
        return max(least, round(most ** random.random()))

    groups = [size(1, 2000) for _ in range(random.choice((0, 1, 1, 2, 5)))]
    sizes = {known.name: size(max(known.least, 1), 5000) for known in explorer.SIZES}
    sizes |= {"heads": (heads := size(1, 64)), "d": heads * size(1, 800)}
    return {
        "G": groups,
        **sizes,
        "N_E": random.choice((0, sizes["N_E"])),
        "captions": random.choice(("MS-COCO", "T")),
        "precision": random.choice(list(BYTES)),
        "form": random.choice(explorer.FORMS),
        "device": random.choice(list(load_specs())),
    }


def texts(state: dict[str, object]) -> dict[str, str]:
    """What the page prints, as Python computes it."""
    found = explorer.costs(state)
    return {name: explorer.printed(of, explorer.unit_of(name)) for name, of in found.items()}


def same_digits(site: Site, random: Random) -> str:
    """Random configurations, all in one load of the page."""
    states = [random_state(random) for _ in range(CONFIGURATIONS)]
    states += [preset["state"] for preset in explorer.presets()]
    printed = "Object.entries(costs(state)).map(([name, n]) => [name, printed(n, unitOf(name))])"
    expression = f"{json.dumps(states)}.map(state => Object.fromEntries({printed}))"
    with site.open("explorer") as page:
        found = page.evaluate(expression)
    numbers = 0
    for state, shown in zip(states, found, strict=True):
        assert shown == texts(state), state
        numbers += len(shown)
    return f"{len(states)} configurations, {numbers} numbers"


def shown_on(page: Page) -> dict[str, str]:
    """The costs that the page shows, by name."""
    pairs = "costs => costs.map(cost => [cost.dataset.cost, cost.textContent])"
    return dict(page.locator("[data-cost]").evaluate_all(pairs))


def address_holds_the_state(site: Site, random: Random) -> str:
    """A page opened at an address, or typed into, shows that state's numbers; or what is wrong."""
    for _ in range(3):
        state = random_state(random)
        words = {**state, "G": ",".join(map(str, state["G"]))}
        with site.open("explorer", f"#{urlencode(words)}") as page:
            opened, address = shown_on(page), page.url
        with site.open("explorer") as page:
            for name, value in words.items():
                field = page.locator(f"[name={name}]")
                if field.evaluate("field => field.tagName") == "SELECT":
                    field.select_option(str(value))
                else:
                    field.fill(str(value))
            assert shown_on(page) == opened
            assert parse_qsl(urlsplit(page.url).fragment) == parse_qsl(urlsplit(address).fragment)
        expected = texts(state)
        assert set(expected) <= set(opened)
        for name, text in opened.items():
            assert text == expected.get(name, f"no {state['precision']}"), (name, state)
    with site.open("explorer", "#L=none&T=1") as page:
        assert "L, T: expected a whole number" in page.locator("#message").inner_text()
    with site.open("explorer", "#heads=7&d=512&y=what") as page:
        assert "heads: expected a divisor of d = 512" in page.locator("#message").inner_text()
        assert page.locator("[name=y]").input_value() == "paper"
    return "3 addresses, typed too, and wrong ones"


CHECKS = (same_digits, address_holds_the_state)
