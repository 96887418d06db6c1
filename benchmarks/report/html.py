"""The report as a static site: a file per page, one style sheet, one script, the pictures."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import jinja2
from latex2mathml.converter import convert
from markupsafe import Markup, escape
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer, get_lexer_for_filename

from benchmarks.files import slug
from benchmarks.report import sources
from benchmarks.report.document import (
    LINK,
    SUPERSCRIPTS,
    Cell,
    Evidenced,
    Figure,
    Page,
    Photographs,
    Table,
    Value,
    text_of,
)
from benchmarks.typeset import typeset

MARKS = "".join(map(chr, SUPERSCRIPTS.values()))
_CODE = HtmlFormatter(nowrap=True, classprefix="p-")
_NUMBER = re.compile(r"[-+−±.,\d\s×%^e\[\]]*\d[-+−±.,\d\s×%^e\[\]]*")
_AGREES = ("agrees", "agrees in part", "agrees in order", "agrees where compared")
_OF_CLASS = {
    "good": ("pass", "covered", "met", "supported", *_AGREES, "same data"),
    "bad": ("FAIL", "missed", "contradicted", "opposes", "opposes in part", "differs"),
    "other": ("other data",),
    "embedded": ("embedded",),
    "predicted": ("predicted",),
    "muted": ("mixed", "not run", "not settled", "cannot be tested here"),
}
KINDS = {word: name for name, words in _OF_CLASS.items() for word in words}
"""The style class of a word, for its colour."""


def inline(text: str) -> Markup:
    """The markup of a text as HTML; everything else in it is escaped."""
    marked = re.sub(r"`([^`]+)`", r"<code>\1</code>", typeset(str(escape(text))))
    marked = re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", marked)
    marked = re.sub(
        r"\b(CIDEr-D|ROUGE-L|(?:Tables?|Figure|section) [IVX\d]\S*)",
        r'<span class="whole">\1</span>',
        marked,
    )
    return Markup(re.sub(LINK, r'<a href="\2">\1</a>', marked))


def kind(cell: Cell) -> str:
    """The style class of a table's cell: a number's, or that of a word with a colour."""
    text = text_of(cell)
    if isinstance(cell, Value):
        return "number" if re.match(r"[-+−–×\d]", cell.printed or text) else ""
    return KINDS.get(text.rstrip(MARKS)) or ("number" if _NUMBER.fullmatch(text) else "")


def wordy(table: Table) -> bool:
    """Whether most cells, except the rows' names, are words."""
    cells = [cell for row in table.rows for cell in row[1:] if cell not in (None, "", Value())]
    return 2 * sum(kind(cell) == "number" for cell in cells) < len(cells)


def mathml(latex: str) -> Markup:
    """A formula as MathML."""
    return Markup(convert(latex, display="block"))


def python(source: str) -> Markup:
    """Python code with syntax highlighting."""
    return Markup(highlight(source, PythonLexer(), _CODE))


def lines(source: str, file: str) -> Markup:
    """A file's lines with syntax highlighting, each with an anchor."""
    coloured = highlight(source, get_lexer_for_filename(file, stripnl=False), _CODE).splitlines()
    places = (f'<span id="line-{n}">{line}\n</span>' for n, line in enumerate(coloured, 1))
    return Markup("".join(places))


def style() -> str:
    """The style sheet."""
    light, dark = (
        HtmlFormatter(style=name, classprefix="p-").get_style_defs("pre")
        for name in ("xcode", "github-dark")
    )
    text = _environment().get_template("style.css").render()
    return f"{text}\n{light}\n@media screen and (prefers-color-scheme: dark) {{\n{dark}\n}}\n"


def _environment() -> jinja2.Environment:
    found = jinja2.Environment(
        loader=jinja2.PackageLoader("benchmarks.report"),
        autoescape=jinja2.select_autoescape(["html"]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    shown = (inline, kind, lines, mathml, python, slug, text_of, wordy)
    found.filters.update({filter_.__name__: filter_ for filter_ in shown})
    found.filters["source"] = lambda code: sources.link(code.path, code.line)
    found.filters["word_kind"] = lambda word: KINDS.get(word, "")
    found.tests["block"] = lambda block, name: type(block).__name__ == name
    return found


def texts(pages: Sequence[Page], link: Callable[[Evidenced], str]) -> dict[str, str]:
    """The text of every page of the site, its style sheet and its script, by file name.

    Args:
        pages: the first is the page to open.
        link: returns the address of a value's evidence.
    """
    environment = _environment()
    environment.filters["evidence"] = link
    found = {"style.css": style(), "site.js": environment.get_template("site.js").render()}
    for page in pages:
        template = environment.get_template(page.template)
        found[f"{page.name}.html"] = template.render(page=page, pages=pages, **page.data)
    return found


def pictures(pages: Sequence[Page]) -> Iterator[tuple[str, bytes]]:
    """Path and content of every figure and photograph of the site."""
    sections = (section for page in pages for section in page.sections)
    for block in (block for section in sections for block in section.blocks):
        match block:
            case Figure():
                yield f"figures/{block.name}.svg", block.svg.encode()
                if block.narrow is not None:
                    yield f"figures/{block.name}-narrow.svg", block.narrow().encode()
            case Photographs():
                for item in block.items:
                    if item.jpeg is not None:
                        yield f"photographs/{item.name}.jpg", item.jpeg
