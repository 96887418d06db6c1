"""The report's document model: pages of sections of blocks, rendered as HTML and as Markdown.

Text has three kinds of markup: ``**bold**``, backquoted code, and ``[links](page.html#place)`` to
pages of the report or files of the repository; everything else is shown as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from benchmarks.records import Record

TARGET = r"\((?!/)([\w./#-]+)\)"
"""The target of a link within the site; ``//host`` would be another's."""

LINK = rf"\[((?:[^\[\]]|\[[^\]]*\])+)\]{TARGET}"
"""A link within the site."""


@dataclass(frozen=True)
class Value:
    """A number of ours in a table, with its evidence.

    Args:
        text: the number as shown.
        records: what it is computed from; the first is linked.
        status: of the records, or "not run"; shown in words and by colour.
        printed: the paper's number, shown above; ``source`` is its address in the paper's file.
        detail: difference, interval, seeds: shown below.
        note: a remark on the cell.
    """

    text: str = ""
    records: Sequence[Record[Any]] = ()
    status: str = ""
    printed: str = ""
    detail: str = ""
    note: str = ""
    source: str = ""


@dataclass(frozen=True)
class Folded:
    """Text in a table's row that is shown on demand.

    Args:
        word: always shown.
        text: shown on demand.
        records: its evidence.
    """

    word: str
    text: str
    records: Sequence[Record[Any]] = ()


Cell = str | float | int | None | Value | Folded


@dataclass(frozen=True)
class Paragraph:
    """Prose."""

    text: str


@dataclass(frozen=True)
class Box:
    """A sentence that says what the evidence below it shows, and a verdict."""

    word: str
    text: str
    records: Sequence[Record[Any]] = ()


@dataclass(frozen=True)
class Table:
    """A table; a ``folded`` one starts closed, with its caption as summary."""

    name: str
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    folded: bool = False


@dataclass(frozen=True)
class Figure:
    """A figure drawn from ``records``.

    Args:
        draw: returns its SVG, called only where it is written.
        narrow: likewise, for narrow windows.
    """

    name: str
    caption: str
    records: Sequence[Record[Any]]
    draw: Callable[[], str] = field(compare=False)
    narrow: Callable[[], str] | None = field(default=None, compare=False)

    @cached_property
    def svg(self) -> str:
        return self.draw()


@dataclass(frozen=True)
class Photograph:
    """A photograph with lines of text below it; ``jpeg`` is None if the data are missing."""

    name: str
    lines: Sequence[str]
    jpeg: bytes | None = None


@dataclass(frozen=True)
class Photographs:
    """Photographs side by side, with what ``records`` have of them."""

    name: str
    caption: str
    items: Sequence[Photograph]
    records: Sequence[Record[Any]]


@dataclass(frozen=True)
class Code:
    """A function or class: its dotted name, file from the repository's root, line, source."""

    name: str
    path: str
    line: int
    source: str


@dataclass(frozen=True)
class Equation:
    """A printed equation, its oracle, the PyTorch form, and the tests that compare them.

    Args:
        title: its number, or a listing's name.
        formula: LaTeX, one string per line.
        notes: kind, printed, taken, why.
        oracle: its code.
        counterpart: the PyTorch form's code; if None, ``without`` says why.
        properties: the tests that compare them, in words.
        errors: the worst error of each comparison.
    """

    title: str
    formula: Sequence[str]
    notes: Sequence[tuple[str, str, str, str]]
    oracle: Code
    counterpart: Code | None
    without: str
    properties: Sequence[str]
    errors: Sequence[Value]


Block = Paragraph | Box | Table | Figure | Photographs | Equation
Evidenced = Value | Folded | Box | Figure | Photographs
"""What links to records."""


@dataclass(frozen=True)
class Section:
    """A heading and its blocks."""

    title: str
    blocks: Sequence[Block] = ()


@dataclass(frozen=True)
class Page:
    """A page of the report, ``name``.html of the site.

    Args:
        name: of its file.
        title: its heading, also in the navigation.
        lead: the sentences below the heading.
        sections: its content.
        template: of the site, ``page.html`` or one that extends it.
        data: what that template reads besides.
        published: whether it is a page of the Markdown too.
        listed: whether the navigation has it.
    """

    name: str
    title: str
    lead: str
    sections: Sequence[Section] = ()
    template: str = "page.html"
    data: Mapping[str, Any] = field(default_factory=dict)
    published: bool = True
    listed: bool = True


def evidenced(records: Sequence[Record[Any]], *cells: Cell) -> Iterator[Cell]:
    """The cells, those with a digit as values that are linked to the records."""
    for cell in cells:
        text = text_of(cell)
        plain = records and not isinstance(cell, Value | Folded)
        yield Value(text, records) if plain and re.search(r"\d", text) else cell


def text_of(cell: Cell) -> str:
    """A table cell as text: numbers to four significant digits, nothing for None."""
    match cell:
        case None:
            return ""
        case Value():
            return cell.text
        case Folded():
            return f"{cell.word}: {cell.text}"
        case float():
            return f"{cell:.4g}"
    return str(cell)


SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def footnotes(texts: Iterable[str]) -> dict[str, str]:
    """A superscript mark for each distinct text, which is printed once below a table."""
    numbered = enumerate(dict.fromkeys(texts), 1)
    return {text: str(n).translate(SUPERSCRIPTS) for n, text in numbered}
