"""Plain text for a terminal: aligned columns, and what is going on."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tqdm import tqdm


class progress(tqdm):  # noqa: N801  (used as a function)
    """A line on stderr that says what is going on."""

    def __init__(self) -> None:
        super().__init__(file=sys.stderr, bar_format="{desc} ({elapsed})", disable=None)

    def __call__(self, text: str) -> None:
        """Say it."""
        self.set_description_str(text)


def grid(rows: Sequence[Sequence[str]], *, left: int = 1) -> list[str]:
    """A line a row, two spaces between columns: the first ``left`` flush left, the others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if n < left else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
