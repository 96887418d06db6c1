"""The report as Markdown: one page, a file for every table, a file for every figure."""

from __future__ import annotations

from benchmarks.report.document import (
    Block,
    Document,
    Figure,
    Paragraph,
    Photographs,
    Table,
    text_of,
)


def table(block: Table) -> str:
    """A table in Markdown, its caption above."""

    def line(cells: list[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    lines = [
        f"**{block.caption}**",
        "",
        line(list(block.columns)),
        line(["---"] * len(block.columns)),
        *(line([text_of(cell) for cell in row]) for row in block.rows),
    ]
    return "\n".join(lines) + "\n"


def _block(block: Block) -> str:
    match block:
        case Paragraph(text):
            return text + "\n"
        case Table():
            if block.folded:
                return f"{block.caption}: [{len(block.rows)} rows](tables/{block.name}.md)\n"
            return table(block)
        case Figure():
            return f"![{block.caption}](figures/{block.name}.svg)\n\n{block.caption}\n"
        case Photographs():
            items = (
                "\n".join([f"- `{item.name}`", *(f"  - {line}" for line in item.lines)])
                for item in block.items
            )
            return f"{block.caption}\n\n" + "\n".join(items) + "\n"


def files(document: Document) -> dict[str, str]:
    """Every file of the Markdown report: relative path to text."""
    page = [f"# {document.title}\n", document.lead + "\n"]
    written: dict[str, str] = {}
    for section in document.sections:
        page.append(f"## {section.title}\n")
        for block in section.blocks:
            page.append(_block(block))
            if isinstance(block, Table):
                written[f"tables/{block.name}.md"] = table(block)
            elif isinstance(block, Figure):
                written[f"figures/{block.name}.svg"] = block.svg
    return {"README.md": "\n".join(page), **written}
