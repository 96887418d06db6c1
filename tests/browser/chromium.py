"""A headless Chromium, driven by Playwright: a site's pages at any width, in either scheme."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from playwright.sync_api import Browser, Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
WIDE, NARROW = 1440, 390
TIMEOUT = 120_000


def find() -> str | None:
    """The browser's path, None without one."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@dataclass(frozen=True)
class Site:
    """A built site and the browser that opens it."""

    folder: Path
    browser: Browser

    @property
    def pages(self) -> list[str]:
        """The names of its pages."""
        return sorted(path.stem for path in self.folder.glob("*.html"))

    @contextmanager
    def open(
        self, name: str, place: str = "", *, width: int = WIDE, scheme: str = "light"
    ) -> Iterator[Page]:
        """A page, loaded; nothing may have been written to its console when it is left."""
        size = {"width": width, "height": 900}
        with self.browser.new_context(viewport=size, color_scheme=scheme) as context:
            context.set_default_timeout(TIMEOUT)
            page, said = context.new_page(), []
            page.on("console", lambda message: said.append(message.text))
            page.on("pageerror", lambda error: said.append(str(error)))
            page.on("requestfailed", lambda request: said.append(f"not loaded: {request.url}"))
            page.goto((self.folder / f"{name}.html").resolve().as_uri() + place)
            yield page
            assert not said, f"{name} at {width} px, {scheme}: {said[0]}"


def tried(check: Callable[[Site, Random], str], folder: Path, seed: int) -> tuple[bool, str]:
    """Whether a check of a built site holds, in a browser of its own, and what it says."""
    with opened(folder) as shown:
        try:
            return True, check(shown, Random(seed))
        except AssertionError as error:
            return False, str(error)


@contextmanager
def opened(folder: Path) -> Iterator[Site]:
    """A built site in the browser."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=find(), args=["--no-sandbox"])
        yield Site(folder, browser)
        browser.close()
