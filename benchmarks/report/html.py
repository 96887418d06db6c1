"""The report as one self-contained HTML page, readable on a phone, in light and in dark."""

from __future__ import annotations

import base64
import re
from html import escape

from benchmarks.report.document import (
    Block,
    Cell,
    Document,
    Figure,
    Paragraph,
    Photograph,
    Photographs,
    Table,
    text_of,
)

STYLE = """
:root { color-scheme: light dark; --ink: #1c2330; --paper: #fff; --soft: #f3f5f8; --line: #d9dee6;
  --accent: #2457a6; --good: #1b7f4b; --bad: #b3261e; --muted: #5d6675; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --paper: #14171c; --soft: #1e232b;
  --line: #343b46; --accent: #8ab4f8; --good: #6fcf97; --bad: #ff8a80; --muted: #9aa3b2; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, sans-serif; }
main, header, nav { max-width: 62rem; margin: 0 auto; padding: 0 1rem; }
header { padding-top: 2rem; }
h1 { line-height: 1.2; margin: 0 0 .5rem; font-size: 1.9rem; }
h2 { margin: 2.5rem 0 .75rem; padding-top: .5rem; border-top: 2px solid var(--line);
  line-height: 1.25; }
p { max-width: 46rem; }
a { color: var(--accent); }
nav ul { display: flex; flex-wrap: wrap; gap: .3rem .9rem; padding: 0; list-style: none; }
code { background: var(--soft); padding: .1em .3em; border-radius: .25em; font-size: .9em; }
.scroll { overflow-x: auto; margin: .5rem 0 1.25rem; }
table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; }
caption, figcaption, summary { text-align: left; font-weight: 600; padding: .3rem 0; }
figcaption { font-weight: 400; color: var(--muted); }
summary { cursor: pointer; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--line); text-align: left;
  vertical-align: top; }
td.number, th.number { text-align: right; white-space: nowrap; }
thead th { background: var(--soft); border-bottom: 2px solid var(--line); }
td.good { color: var(--good); font-weight: 600; } td.bad { color: var(--bad); font-weight: 700; }
td.muted { color: var(--muted); }
figure { margin: 1rem 0; } figure svg { max-width: 100%; height: auto; background: #fff;
  border-radius: .4rem; }
.photographs { display: grid; grid-template-columns: repeat(auto-fill, minmax(13rem, 1fr));
  gap: 1rem; }
.photographs figure { margin: 0; background: var(--soft); border-radius: .5rem; padding: .6rem; }
.photographs img { width: 100%; height: auto; border-radius: .3rem; }
.photographs figcaption { color: var(--ink); font-size: .9rem; overflow-wrap: anywhere; }
"""

_GOOD = {"pass", "covered", "same data", "met"}
_BAD = {"FAIL", "missed"}
_MUTED = {"not run", "not yet", "not settled"}


def _inline(text: str) -> str:
    marked = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))
    return re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", marked)


def _cell(cell: Cell) -> str:
    text = text_of(cell)
    kind = ""
    if isinstance(cell, int | float) or re.fullmatch(r"[-+−±.,\d\s×%^e]*\d[-+−±.,\d\s×%^e]*", text):
        kind = "number"
    elif text in _GOOD:
        kind = "good"
    elif text in _BAD:
        kind = "bad"
    elif text in _MUTED:
        kind = "muted"
    return f'<td class="{kind}">{_inline(text)}</td>' if kind else f"<td>{_inline(text)}</td>"


def _table(block: Table) -> str:
    head = "".join(f"<th>{_inline(column)}</th>" for column in block.columns)
    body = "\n".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in block.rows)
    caption = "" if block.folded else f"<caption>{_inline(block.caption)}</caption>"
    inner = (
        f'<div class="scroll"><table>{caption}<thead><tr>{head}</tr></thead>'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )
    if not block.folded:
        return inner
    summary = f"{_inline(block.caption)} ({len(block.rows)} rows)"
    return f"<details><summary>{summary}</summary>{inner}</details>"


def _photograph(item: Photograph) -> str:
    picture = ""
    if item.jpeg is not None:
        data = base64.b64encode(item.jpeg).decode()
        picture = f'<img alt="{escape(item.name)}" src="data:image/jpeg;base64,{data}">'
    lines = "<br>".join(map(_inline, item.lines))
    return f"<figure>{picture}<figcaption>{lines}</figcaption></figure>"


def _block(block: Block) -> str:
    match block:
        case Paragraph(text):
            return f"<p>{_inline(text)}</p>"
        case Table():
            return _table(block)
        case Figure():
            # an XML prologue may not stand inside HTML
            svg = block.svg[block.svg.index("<svg") :]
            return f"<figure>{svg}<figcaption>{_inline(block.caption)}</figcaption></figure>"
        case Photographs():
            items = "".join(map(_photograph, block.items))
            return f'<p>{_inline(block.caption)}</p><div class="photographs">{items}</div>'


def page(document: Document) -> str:
    """The whole report as one HTML text that needs no other file."""
    links = "".join(
        f'<li><a href="#s{i}">{_inline(section.title)}</a></li>'
        for i, section in enumerate(document.sections)
    )
    sections = "\n".join(
        f'<section><h2 id="s{i}">{_inline(section.title)}</h2>\n'
        + "\n".join(map(_block, section.blocks))
        + "\n</section>"
        for i, section in enumerate(document.sections)
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(document.title)}</title><style>{STYLE}</style></head>\n<body>"
        f"<header><h1>{_inline(document.title)}</h1><p>{_inline(document.lead)}</p></header>"
        f"<nav><ul>{links}</ul></nav><main>\n{sections}\n</main></body></html>\n"
    )
