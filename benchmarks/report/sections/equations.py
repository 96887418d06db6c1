"""Sections on correctness: which equations are oracled, and how close implementations come."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.equations import WITHOUT_COUNTERPART, notes
from benchmarks.kinds import Equation, Equations, Verification
from benchmarks.records import Record, of
from benchmarks.report.document import (
    Block,
    Cell,
    Paragraph,
    Section,
    Table,
)
from benchmarks.report.sections.evidence import not_run, provenance
from benchmarks.verify.tolerances import (
    DIFFERENCES,
    FLOAT64,
    LITERAL_FACTOR,
    ULPS,
)
from reference.equations import PAPERS


def coverage(records: Sequence[Record]) -> Section:
    """Which equations are oracled, and the errata."""
    made = of(records, Equations)
    blocks: list[Block] = []
    if made:
        rows = [
            [
                PAPERS[r.what.paper].title,
                f"{r.values['covered']} of {r.values['total']}",
            ]
            for r in sorted(made, key=lambda r: list(PAPERS).index(r.what.paper))
        ]
        covered = sum(r.values["covered"] for r in made)
        total = sum(r.values["total"] for r in made)
        listings = sum(r.values["listings"] for r in made)
        all_listings = sum(r.values["all listings"] for r in made)
        blocks.append(
            Paragraph(
                f"**{covered} of {total}** numbered equations (and {listings} of {all_listings} "
                f"listings) have an oracle in NumPy. {_tied(made)}"
            )
        )
        blocks.append(Table("coverage", "Equations by paper", ("paper", "oracled"), rows))
        for r in made:
            entries = [e for e in r.details.entries if e.oracle]
            if entries:
                blocks.append(_equation_table(r.what.paper, entries))
        blocks.append(provenance(made))
    columns = ("paper", "where", "kind", "printed", "taken", "why")
    errata: list[list[Cell]] = [[note[column] for column in columns] for note in notes()]
    blocks.append(
        Table(
            "errata",
            "Errata, and decisions where the print leaves something open",
            columns,
            errata,
            folded=True,
        )
    )
    return Section("Every equation", blocks)


def _tied(made: Sequence[Record]) -> str:
    """How many of the oracles have what ties them to PyTorch, and why the others have not."""
    oracled = [e for r in made for e in r.details.entries if e.oracle]
    alone = [e for e in oracled if not e.counterpart]
    tested = sum(bool(e.properties) for e in oracled)
    text = (
        f"Of these {len(oracled)}, {len(oracled) - len(alone)} have a PyTorch counterpart, and "
        f"{tested} have properties that hold them."
    )
    for e in alone:
        why = WITHOUT_COUNTERPART.get((e.paper, e.number), "not yet")
        text += f" Without counterpart is {e.paper} ({e.number}): {why}."
    return text


def _equation_table(paper: str, entries: Sequence[Equation]) -> Table:
    rows: list[list[Cell]] = [
        [
            str(e.number),
            _code(e.oracle),
            _code(e.counterpart) or WITHOUT_COUNTERPART.get((paper, e.number), ""),
            str(len(e.properties)),
        ]
        for e in entries
    ]
    columns = ("equation", "oracle", "counterpart", "properties")
    return Table(f"equations-{paper}", f"{PAPERS[paper].title}", columns, rows, folded=True)


def _code(names: str | Sequence[str] | None) -> str:
    listed = [names] if isinstance(names, str) else list(names or ())
    return ", ".join(f"`{name}`" for name in listed)


TITLE = "Our implementations against the oracle"


def _error(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.1e}"


def verification(records: Sequence[Record]) -> Section:
    """Our implementations against the oracle: worst error, bound, verdict."""
    made = of(records, Verification)
    if not made:
        return Section(TITLE, [not_run("", "`captionbench report` runs it.")])
    rows = [row for r in made for row in r.details.rows]
    failed = [row for row in rows if not row.passed]
    verdict = "all within their bounds" if not failed else f"**{len(failed)} outside their bounds**"
    columns = (
        "operator",
        "equations",
        "of",
        "implementation",
        "dtype",
        "device",
        "cases",
        "worst error",
        "bound",
        "",
    )
    table = Table(
        "verification",
        "Worst error against the float64 oracle, relative to its largest entry",
        columns,
        [
            [
                *(row.operator, row.numbers, row.what, row.implementation),
                *(row.dtype, row.device, row.cases),
                _error(row.worst),
                _error(row.bound),
                "pass" if row.passed else "FAIL",
            ]
            for row in rows
        ],
        folded=True,
    )
    lead = Paragraph(
        f"{len(rows)} comparisons of our PyTorch forms with the oracle: {verdict}. A bound is "
        f"relative to the largest entry: {FLOAT64:.1e} for an output in float64; {DIFFERENCES:.1e} "
        "for a gradient, because it is held to central differences, which are no closer; in lower "
        f"precision {LITERAL_FACTOR:g} times the literal form's own error and {ULPS:g} ulp."
    )
    return Section(TITLE, [lead, table, provenance(made)])
