"""Every page, on a telephone and on a screen: nothing wider than the window, nothing complains."""

from __future__ import annotations

from pathlib import Path
from random import Random

from tests.browser import chromium

WIDTHS = (390, 1280)
WIDEST = "Math.max(0, document.documentElement.scrollWidth - window.innerWidth)"


def no_page_is_wider_than_its_window(site: Path, _: Random) -> str:
    """At both widths."""
    pages = sorted(site.glob("*.html"))
    for page in pages:
        for width in WIDTHS:
            over = int(chromium.evaluate(page, WIDEST, width))
            assert over == 0, f"{page.name} is {over} px wider than {width}"
    return f"{len(pages)} pages at {' and '.join(map(str, WIDTHS))} px"


def scripts_write_nothing_to_the_console(site: Path, _: Random) -> str:
    """Of no page, opened as it is."""
    pages = sorted(site.glob("*.html"))
    for page in pages:
        _, said = chromium.load(page)
        assert not said, f"{page.name}: {said[0]}"
    return f"{len(pages)} pages"


CHECKS = (no_page_is_wider_than_its_window, scripts_write_nothing_to_the_console)
