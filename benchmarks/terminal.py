"""Plain text for a terminal: aligned columns."""

from __future__ import annotations

from collections.abc import Sequence


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
