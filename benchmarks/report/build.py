"""Put the report together from records, and write it: a static site, and Markdown beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import records
from benchmarks.files import write_atomically
from benchmarks.records import Record
from benchmarks.report import evidence, explorer, html, markdown
from benchmarks.report.document import Page, Section
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

LEAD = (
    "Five captioning papers, checked: every number here was measured, and says where and how, or "
    "says that it is predicted. A value is **same data** (the paper's own), **other data** (order "
    "and sign compare, values do not), **embedded** (generated scenes), **predicted** (computed "
    "from what a device can do, never measured), or **not run**."
)


def pages(
    made: Sequence[Record], jpegs: Mapping[int, bytes] | None = None, *, quick: bool = False
) -> list[Page]:
    """Every page, the first first: a pure function of records and the papers' own numbers.

    Args:
        made: the records.
        jpegs: photographs by id, shown where a record has captions of them.
        quick: whether it is the short form, which says what it leaves out.
    """
    made, seen = records.newest(made), jpegs or {}
    return [
        Page("index", "What held up", LEAD, _first(made)),
        *(
            Page(paper, title, "", sections(made, seen, quick))
            for paper, (title, sections) in PAPERS.items()
        ),
        Page("speed", "Speed", "", _speed(made)),
        explorer.page(),
        *evidence.pages(made, {paper: title for paper, (title, _) in PAPERS.items()} | OTHERS),
    ]


def _first(made: Sequence[Record]) -> list[Section]:
    return [equations.coverage(made), equations.verification(made), tables.every_table(made)]


def _v1(made: Sequence[Record], jpegs: Mapping[int, bytes], quick: bool) -> list[Section]:
    return [
        released.released(made, quick=quick),
        expansion_rewards.expansion_rewards(made),
        training_time.training_time(made),
    ]


def _v2(made: Sequence[Record], jpegs: Mapping[int, bytes], quick: bool) -> list[Section]:
    return [
        operations.operations(made),
        expansion.expansion(made, jpegs),
        ablation.ablation(made),
        photographs.photographs(made, jpegs),
    ]


def _arnet(made: Sequence[Record], jpegs: Mapping[int, bytes], quick: bool) -> list[Section]:
    return [arnet.arnet(made, jpegs), discrepancy.discrepancy(made)]


def _read_only(made: Sequence[Record], jpegs: Mapping[int, bytes], quick: bool) -> list[Section]:
    return [read_only.read_only(made, jpegs)]


def _middle_out(made: Sequence[Record], jpegs: Mapping[int, bytes], quick: bool) -> list[Section]:
    return [denoising.denoising(made), middle_out.middle_out(made, jpegs)]


PAPERS = {
    "expansionnet_v1": ("ExpansionNet v1", _v1),
    "expansionnet_v2": ("ExpansionNet v2", _v2),
    "arnet": ("ARNet", _arnet),
    "lstm_readonly": ("Read-only LSTM", _read_only),
    "middle_out": ("Middle-Out", _middle_out),
}


OTHERS = {"all": "speed, counts and verification"}
"""What records are about that are of no paper."""


def _speed(made: Sequence[Record]) -> list[Section]:
    return [
        speed.speed(made),
        scaling.scaling(made),
        roofline.roofline(made),
        *history.history(made),
    ]


def write_site(shown: Sequence[Page], folder: Path) -> Path:
    """Write the site into a folder; the page to open."""
    for name, text in html.texts(shown, evidence.link).items():
        with write_atomically(folder / name) as file:
            file.write(text)
    for name, content in html.pictures(shown):
        with write_atomically(folder / name, "wb") as file:
            file.write(content)
    return folder / "index.html"


def write_markdown(shown: Sequence[Page], folder: Path) -> None:
    """Write the Markdown pages and their figures into a folder."""
    for name, text in markdown.files(shown):
        with write_atomically(folder / name) as file:
            file.write(text)


def stale(made: Sequence[Record], folder: Path) -> list[str]:
    """Published Markdown files that are not what the published records give."""
    return sorted(
        name
        for name, text in markdown.texts(pages(made)).items()
        if not (folder / name).exists() or (folder / name).read_text(encoding="utf-8") != text
    )
