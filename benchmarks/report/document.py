"""What a report is made of: sections of paragraphs, tables, figures and photographs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

Cell = str | float | int | None


@dataclass(frozen=True)
class Paragraph:
    """Prose; ``**bold**`` and backquoted code are the only markup."""

    text: str


@dataclass(frozen=True)
class Table:
    """A table; ``name`` is its file name in Markdown, ``folded`` tables start closed in HTML."""

    name: str
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    folded: bool = False


@dataclass(frozen=True)
class Figure:
    """A drawing as SVG text."""

    name: str
    caption: str
    svg: str


@dataclass(frozen=True)
class Photograph:
    """A photograph with lines of text below it; ``jpeg`` is None where the data are not at hand."""

    name: str
    lines: Sequence[str]
    jpeg: bytes | None = None


@dataclass(frozen=True)
class Photographs:
    """Photographs side by side."""

    name: str
    caption: str
    items: Sequence[Photograph]


Block = Paragraph | Table | Figure | Photographs


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it."""

    title: str
    blocks: Sequence[Block] = field(default_factory=tuple)


@dataclass(frozen=True)
class Document:
    """A whole report."""

    title: str
    lead: str
    sections: Sequence[Section]


def text_of(cell: Cell) -> str:
    """A table cell as text: numbers to four significant digits at least, nothing for None."""
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:.4g}"
    return str(cell)
