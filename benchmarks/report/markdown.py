"""The report as Markdown: a file per page, and the figures."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from benchmarks.report.document import (
    LINK,
    TARGET,
    Block,
    Box,
    Cell,
    Equation,
    Figure,
    Page,
    Paragraph,
    Photographs,
    Table,
    Value,
    text_of,
)
from benchmarks.typeset import typeset


def inline(text: str) -> str:
    """Text as Markdown, with tags and foreign links escaped."""
    text = re.sub(r"\s*[\n\r]\s*", " ", text)
    if text.lstrip().startswith("[") and "]:" in text:
        text = "\\" + text.lstrip()  # else a definition of a link, [name]: target
    parts = re.split(r"((?<![`\\])`[^`]+`(?!`))", text)
    # code is shown as it is; other backticks are escaped
    for character, entity in {"&": "&amp;", "<": "&lt;", "`": "&#96;"}.items():
        parts[::2] = (part.replace(character, entity) for part in parts[::2])
    parts[::2] = (re.sub(rf"\](?=\()(?!{TARGET})", r"]\\", part) for part in parts[::2])
    return re.sub(LINK, _link, typeset("".join(parts)))


def _link(found: re.Match[str]) -> str:
    """A link, with the site's pages replaced by Markdown files."""
    target = re.sub(r"^index\.html", "README.html", found[2])
    target = re.sub(r"^(\w+)\.html", r"\1.md", target)
    return f"[{found[1]}]({target})"


def _cell(cell: Cell) -> str:
    if isinstance(cell, Value):
        parts = [cell.printed, f"**{cell.text}**" if cell.printed else cell.text, cell.detail]
        text = "<br>".join(inline(part) for part in parts if part and part != "****")
    else:
        text = inline(text_of(cell))
    return re.sub(r"(?<!\\)\|", r"\\|", text)


def table(block: Table) -> str:
    """A table in Markdown, its caption above."""
    lines = [list(block.columns), ["---"] * len(block.columns)]
    lines = [[_cell(cell) for cell in line] for line in (*lines, *block.rows)]
    grid = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    if not block.folded:
        return f"**{inline(block.caption)}**\n\n{grid}\n"
    summary = f"{inline(block.caption)} ({len(block.rows)} rows)"
    return f'<details id="{block.name}"><summary>{summary}</summary>\n\n{grid}\n\n</details>\n'


def _block(block: Block) -> str:
    match block:
        case Paragraph(text):
            return inline(text) + "\n"
        case Box(word, text):
            return f"> **{word}**: {inline(text)}\n"
        case Table():
            return table(block)
        case Figure():
            caption = inline(block.caption)
            said = re.sub(LINK, r"\1", caption)
            return f"![{said}](figures/{block.name}.svg)\n\n{caption}\n"
        case Equation():
            return _equation(block)
        case Photographs():
            items = (
                "\n".join([f"- `{item.name}`", *(f"  - {inline(line)}" for line in item.lines)])
                for item in block.items
            )
            return f"{inline(block.caption)}\n\n" + "\n".join(items) + "\n"


def _equation(block: Equation) -> str:
    parts = [f"### {block.title}\n", *(f"$${line}$$\n" for line in block.formula)]
    parts += [
        f"- **{kind}**: printed: {inline(printed)}; taken: {inline(taken)}. {inline(why)}"
        for kind, printed, taken, why in block.notes
    ]
    parts.append(f"- oracle: [`{block.oracle.name}`](../{block.oracle.path})")
    if form := block.counterpart:
        parts.append(f"- PyTorch form: [`{form.name}`](../{form.path})")
    else:
        parts.append(f"- no PyTorch form: {inline(block.without)}")
    parts.append(f"- {len(block.properties)} properties tie them")
    parts += [f"- error {error.text} ({inline(error.detail)})" for error in block.errors]
    return "\n".join(parts) + "\n"


def page(shown: Page, pages: Sequence[Page] = ()) -> str:
    """A page as Markdown; the first of several links to the others."""
    parts = [f"# {shown.title}\n", inline(shown.lead) + "\n"]
    if pages and shown is pages[0]:
        others = " · ".join(f"[{other.title}]({other.name}.md)" for other in pages[1:])
        parts.append(others + "\n")
    for section in shown.sections:
        parts += [f"## {inline(section.title)}\n", *map(_block, section.blocks)]
    return "\n".join(part for part in parts if part.strip())


def texts(pages: Sequence[Page]) -> dict[str, str]:
    """The text of every Markdown page, by relative path."""
    shown = [each for each in pages if each.published]
    names = {each.name: "README" if each is shown[0] else each.name for each in shown}
    return {f"{names[each.name]}.md": page(each, shown) for each in shown}


def files(pages: Sequence[Page]) -> Iterator[tuple[str, str]]:
    """Relative path and text of every Markdown page and figure."""
    yield from texts(pages).items()
    for shown in (each for each in pages if each.published):
        for section in shown.sections:
            for block in section.blocks:
                if isinstance(block, Figure):
                    yield f"figures/{block.name}.svg", block.svg
