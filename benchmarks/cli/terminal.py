"""Plain text for a terminal: the report's blocks, aligned columns, a status line."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from tqdm import tqdm

from benchmarks.report.document import LINK, Block, Box, Cell, Paragraph, Table, Value, text_of

WIDEST = 130
"""Characters of a line; wider tables are split."""
LONGEST = 60
"""Characters of a cell; tables of longer texts become lists."""


class progress(tqdm):  # noqa: N801  (used as a function)
    """A status line on stderr."""

    def __init__(self) -> None:
        super().__init__(file=sys.stderr, bar_format="{desc} ({elapsed})", disable=None)

    def __call__(self, text: str) -> None:
        self.set_description_str(text)


def grid(rows: Sequence[Sequence[str]], *, left: int = 1) -> list[str]:
    """Rows as lines: the first ``left`` columns are left-aligned, the others right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if n < left else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def lines(blocks: Iterable[Block]) -> Iterator[str]:
    """The sentences and tables among a report's blocks."""
    for block in blocks:
        match block:
            case Box(word, text):
                yield from _wrapped(f"{word}: {text}")
            case Paragraph(text):
                yield from _wrapped(text)
            case Table():
                caption = block.caption.rstrip(".")
                yield from ("", *_wrapped(f"{caption}:"), *_table(block))


def _wrapped(text: str, indent: str = "") -> list[str]:
    """Lines of a text without its markup."""
    plain = re.sub(LINK, r"\1", text).replace("**", "").replace("`", "")
    return textwrap.wrap(plain, WIDEST, initial_indent=indent, subsequent_indent=f"{indent}  ")


def _table(table: Table) -> Iterator[str]:
    """A table's columns side by side, as many as fit; a list if its texts are long."""
    rows = [list(map(_parts, row)) for row in table.rows]
    if any(len(part) > LONGEST for row in rows for parts in row for part in parts):
        for (name, *_), *others in rows:
            yield from _wrapped(name)
            for column, parts in zip(table.columns[1:], others, strict=True):
                for part in filter(None, parts):
                    yield from _wrapped(f"{column}: {part}", "  ")
        return
    found = [list(table.columns), *(line for row in rows for line in _below_each_other(row))]
    first, *widths = (2 + max(map(len, column)) for column in zip(*found, strict=True))
    places = list(range(1, len(table.columns)))
    while True:
        count = sum(width <= WIDEST - first for width in accumulate(widths[p - 1] for p in places))
        chosen, places = [0, *places[: max(1, count)]], places[max(1, count) :]
        kept = [[line[place] for place in chosen] for line in found]
        yield from grid([line for line in kept if any(line)])
        if not places:
            return


def _parts(cell: Cell) -> tuple[str, ...]:
    """The lines of a cell: of a value what is printed, ours, and the detail."""
    parts = (cell.printed, cell.text, cell.detail) if isinstance(cell, Value) else (text_of(cell),)
    return tuple(re.sub(LINK, r"\1", part) for part in parts)


def _below_each_other(row: Sequence[tuple[str, ...]]) -> Iterator[list[str]]:
    """A row as lines: printed values, then ours, then details; words are in the first."""
    values = [parts for parts in row if len(parts) > 1]
    used = [n for n, of_all in enumerate(zip(*values, strict=True)) if any(of_all)] or [0]
    for n in used:
        yield [parts[n] if len(parts) > 1 else parts[0] if n == used[0] else "" for parts in row]
