"""A headless Chromium, driven by its command line."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome")
TIMEOUT = 120


def find() -> str | None:
    """The browser's path, None without one."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def load(
    page: Path, place: str = "", width: int = 1280, height: int = 800
) -> tuple[str, list[str]]:
    """A page's document after its scripts ran, as HTML, and what they wrote to the console."""
    browser = find()
    assert browser is not None
    ran = subprocess.run(
        [
            browser,
            *(
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--enable-logging=stderr",
                "--dump-dom",
            ),
            f"--window-size={width},{height}",
            page.resolve().as_uri() + place,
        ],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=True,
    )
    return ran.stdout, [line for line in ran.stderr.splitlines() if ":CONSOLE" in line]


def evaluate(page: Path, expression: str, width: int = 1280) -> str:
    """The text that an expression of JavaScript is on a page: it may use the page's own names."""
    beside = page.with_name(f"evaluated-{page.name}")
    script = f"<script>document.body.textContent = {expression}</script></body>"
    beside.write_text(page.read_text().replace("</body>", script))
    try:
        document, errors = load(beside, width=width)
    finally:
        beside.unlink()
    assert not errors, errors
    (text,) = re.findall(r"<body[^>]*>(.*)</body>", document, re.DOTALL)
    return html.unescape(text)
