"""Put the report together from records, and write it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import records
from benchmarks.files import write_atomically
from benchmarks.records import Record
from benchmarks.report import html, markdown
from benchmarks.report.document import Document
from benchmarks.report.sections import (
    ablation,
    arnet,
    denoising,
    discrepancy,
    equations,
    expansion,
    expansion_rewards,
    history,
    middle_out,
    operations,
    photographs,
    read_only,
    released,
    roofline,
    scaling,
    speed,
    tables,
    training_time,
)

TITLE = "captionbench: the report"


def document(
    made: Sequence[Record], jpegs: Mapping[int, bytes] | None = None, *, quick: bool = False
) -> Document:
    """The whole report: a pure function of its arguments and of the papers' own numbers.

    Args:
        made: the records.
        jpegs: photographs by id, shown where a record has captions of them.
        quick: whether it is the short form, which says what it leaves out.
    """
    made = records.newest(made)
    return Document(
        TITLE,
        "Five captioning papers, checked: every number here was measured, and says where and how, "
        "or says that it is predicted. "
        "A value is **same data** (the paper's own), **other data** (order and sign compare, "
        "values do not), **embedded** (generated scenes), **predicted** (computed from what a "
        "device can do, never measured), or **not run**. Evidence names a record "
        "by the first characters of its key; the records, each with its command, versions and "
        "commit, are lines of `records/*.jsonl`: in `reports/` what is published, in "
        f"`reports/local/{'quick/' if quick else ''}` what was measured here.",
        (
            equations.coverage(made),
            equations.verification(made),
            operations.operations(made),
            speed.speed(made),
            scaling.scaling(made),
            roofline.roofline(made),
            training_time.training_time(made),
            *history.history(made),
            released.released(made, quick=quick),
            ablation.ablation(made),
            expansion.expansion(made, jpegs or {}),
            expansion_rewards.expansion_rewards(made),
            photographs.photographs(made, jpegs or {}),
            arnet.arnet(made, jpegs or {}),
            discrepancy.discrepancy(made),
            read_only.read_only(made, jpegs or {}),
            denoising.denoising(made),
            middle_out.middle_out(made, jpegs or {}),
            tables.every_table(made),
        ),
    )


def write_markdown(report: Document, folder: Path) -> None:
    """Write the page, the tables and the figures under ``folder``."""
    for name, text in markdown.files(report).items():
        with write_atomically(folder / name) as file:
            file.write(text)


def write_html(report: Document, path: Path) -> None:
    """Write the page that needs no other file."""
    with write_atomically(path) as file:
        file.write(html.page(report))


def stale(made: Sequence[Record], folder: Path) -> list[str]:
    """Published Markdown files that are not what the published records give."""
    expected = markdown.files(document(made))
    return sorted(
        name
        for name, text in expected.items()
        if name.endswith(".md")
        and (not (folder / name).exists() or (folder / name).read_text(encoding="utf-8") != text)
    )
