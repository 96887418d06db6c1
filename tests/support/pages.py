"""Sections and pages of the report as text, for tests."""

from dataclasses import replace

from benchmarks.report import build, markdown
from benchmarks.report.document import Figure, Page, Table


def files(*sections):
    """The Markdown of a page of these sections, and each table and figure by itself."""
    found = {"README.md": markdown.page(Page("t", "t", "l", sections))}
    for block in (block for section in sections for block in section.blocks):
        if isinstance(block, Table):
            found[f"tables/{block.name}.md"] = markdown.table(replace(block, folded=False))
        elif isinstance(block, Figure):
            found[f"figures/{block.name}.svg"] = block.svg
    return found


def report(made):
    """The same of all sections of a report."""
    return files(*(section for page in build.pages(made) for section in page.sections))
