"""The evidence pages: all records, a page per paper, which the report's numbers link to."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from benchmarks import records
from benchmarks.files import slug
from benchmarks.kinds import Compiled, Details, Verification
from benchmarks.records import Record
from benchmarks.report.document import Cell, Evidenced, Page, Section, Table

LENGTH = 12
COMPILED = "compiled, not run"
STATUSES = (*records.STATUSES, COMPILED)


def name_of(record: Record[Any]) -> str:
    """The first characters of the hash that begins the record's line."""
    content = records.line(record)
    return content[len(b'{"hash":"') :][:LENGTH].decode()


def link(shown: Evidenced) -> str:
    """The address of the evidence: of one record, or of a page that shows only these records."""
    first, *others = shown.records
    page, _, name = place(first).partition("#")
    if not others:
        return f"{page}#{name}"
    names = dict.fromkeys(map(name_of, shown.records))
    return f"{page}?of={','.join(names)}#{name}"


def status(record: Record[Any]) -> str:
    """A record's status, or `COMPILED`."""
    return COMPILED if isinstance(record.details, Compiled) else record.status


def place(record: Record[Any]) -> str:
    """The address of a record."""
    return f"{_page(record.what.paper)}.html#{name_of(record)}"


def _page(paper: str) -> str:
    return slug("evidence", paper)


def pages(made: Sequence[Record[Any]], titles: Mapping[str, str]) -> list[Page]:
    """A page that counts the records, and one per paper that lists them.

    Args:
        made: the report's records.
        titles: by paper, or by what else records are about, in order.
    """
    by_paper = {paper: [r for r in made if r.what.paper == paper] for paper in titles}
    by_paper = {paper: found for paper, found in by_paper.items() if found}
    counts: list[list[Cell]] = [
        [
            f"[{titles[paper]}]({_page(paper)}.html)",
            *(
                f"[{n}]({_page(paper)}.html)" if n else "none"
                for n in (len(found), *(Counter(map(status, found))[s] for s in STATUSES))
            ),
            ", ".join(sorted({_device(r) for r in found})),
        ]
        for paper, found in by_paper.items()
    ]
    first = Page(
        "evidence",
        "Evidence",
        "Every number of ours links to its record: one line of JSON under `reports/records/` (or, "
        "measured here, `reports/local/records/`) that begins with the hash shown here. A later "
        "record of the same measurement replaces an earlier one.",
        [
            Section(
                "Records",
                [
                    Table(
                        "records",
                        f"{len(made)} records, by what they are about and by status",
                        ("about", "records", *STATUSES, "devices"),
                        counts,
                    )
                ],
            )
        ],
        published=False,
    )
    return [first, *(_list(paper, titles[paper], found) for paper, found in by_paper.items())]


def _list(paper: str, title: str, made: Sequence[Record[Any]]) -> Page:
    ordered = sorted(made, key=lambda r: (r.what.table, r.what.row, r.data.name, r.seeds, r.time))
    rows = {r.what.row for r in made}
    versions = list(dict.fromkeys(_versions(r) for r in ordered))
    return Page(
        _page(paper),
        f"Evidence: {title}",
        "Choose a table, status, device or commit, or type words of a row, data set or command; "
        "what is folded are the values with their intervals, and the command.",
        template="evidence.html",
        data={
            "records": [_entry(r, rows, versions.index(_versions(r)) + 1) for r in ordered],
            "versions": versions,
        },
        published=False,
        listed=False,
    )


def quoted(command: str, rows: Collection[str]) -> str:
    """A recorded command as a shell reads it.

    In older records arguments are joined by spaces alone: those of ``--only`` are found by the
    names of rows, or by what joins words in such names.
    """
    if "'" in command:
        return command
    before, only, after = command.partition(" --only ")
    of_only, space, others = re.match(r"(.*?)( (?=--)|$)(.*)", after, re.DOTALL).groups()  # type: ignore[union-attr]
    names = "|".join(map(re.escape, sorted(rows, key=len, reverse=True)))
    words = re.findall(rf"(?:{names})(?= |$)|\S+(?:(?: [|+=] |(?<=,) )\S+)*", of_only)
    said = [before.split(" "), *([["--only", *words]] if only else [])]
    said += [others.split(" ")] if space else []
    return " ".join(map(shlex.join, said))


def _entry(record: Record[Any], rows: Collection[str], versions: int) -> dict[str, Any]:
    data, details = record.data, record.details
    return {
        "name": name_of(record),
        "table": record.what.table,
        "row": record.what.row,
        "seeds": ", ".join(map(str, record.seeds)),
        "kind": record.kind,
        "status": status(record),
        "device": _device(record),
        "data": " ".join(filter(None, (data.name, data.split))),
        "fingerprint": data.fingerprint[:LENGTH],
        "n": record.n,
        "commit": (record.commit or "unknown")[:10],
        "changed": record.clean is False,
        "date": record.time[:10],
        "command": quoted(record.command, rows),
        "versions": versions,
        "values": [
            *(
                (name, f"{value:.6g}", details.interval.get(name))
                for name, value in record.values.items()
            ),
            *_worst(details),
        ],
    }


def _worst(details: Details) -> Iterator[tuple[str, str, None]]:
    """The worst error of every verified implementation."""
    for row in details.rows if isinstance(details, Verification) else ():
        name = f"{row.operator}, {row.what}, {row.dtype}, {row.implementation}: worst error"
        yield name, "not finite" if row.worst is None else f"{row.worst:.1e}", None


def _device(record: Record[Any]) -> str:
    return record.device.label if record.device.threads else record.device.name


def _versions(record: Record[Any]) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(record.versions.items()))
