"""``captionbench claims``: what the papers claim, and what the records say of it."""

from __future__ import annotations

import argparse
import json
import textwrap
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from benchmarks import papers
from benchmarks.cli.options import add_json, add_record_folders, known_records
from benchmarks.cli.terminal import grid
from benchmarks.files import check_writable
from benchmarks.papers.claim_tests import OUTCOMES
from benchmarks.papers.claims import Finding, Verdict, verdicts
from benchmarks.papers.equal_models import simulate
from benchmarks.records import LOCAL, Record, append, to_json

MOST_FALSE = 6.0
"""Percent of equal models that may be called different."""
WIDTH = 100
"""Characters of a line."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paper", nargs="?", metavar="PAPER", help=f"{', '.join(papers.names())} (default: all)"
    )
    add_record_folders(parser)
    parser.add_argument(
        "--simulate",
        action="store_true",
        help="instead, how often equal models would be called different, recorded for `import`",
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the verdicts.

    Raises:
        InputError: there is no such paper or folder.
    """
    made = known_records(arguments)
    if arguments.simulate:
        return _simulate(made, as_json=arguments.json)
    found = verdicts(made, arguments.paper)
    if arguments.json:
        print(json.dumps(msgspec.to_builtins(found), indent=2, ensure_ascii=False))
        return 0
    for paper in dict.fromkeys(one.paper for one in found):
        of_paper = [one for one in found if one.paper == paper]
        counts = Counter(one.verdict for one in of_paper)
        print(f"{paper}: {', '.join(f'{counts[o]} {o}' for o in OUTCOMES if counts[o])}\n")
        for one in of_paper:
            for line in lines(one):
                print(line)
        print()
    return 0


def _simulate(made: list[Record[Any]], *, as_json: bool) -> int:
    """Record the simulation; 1 if more than `MOST_FALSE` % of equal models are called different."""
    path = LOCAL / "simulation.jsonl"
    check_writable(path)
    found = simulate(made)
    append(found, path, once=True)
    if as_json:
        print(json.dumps(to_json(found), indent=2))
    else:
        columns = list(found[0].values) if found else []
        rows = [[f"{r.values[name]:.1f}" for name in columns] for r in found]
        listed = [[r.what.row, *row] for r, row in zip(found, rows, strict=True)]
        for line in grid([["of 100 equal models with the variances of", *columns], *listed]):
            print(line)
    return int(any(r.values["false settled"] > MOST_FALSE for r in found))


def lines(one: Verdict) -> Iterator[str]:
    """A verdict: the claim, what was found, on which data."""
    yield from textwrap.wrap(
        f"{one.verdict.upper()}  {one.claim} ({one.where})", WIDTH, subsequent_indent="  "
    )
    if one.by_holm != one.verdict:
        yield f"    {one.by_holm} where all differences of the table are judged together (Holm)"
    yield from (f"    {reason}" for reason in (one.reason, one.part) if reason)
    for finding in one.findings:
        yield f"    {shown(finding)}"
    if one.records:
        seeds = f", {len(one.seeds)} seeds" if one.seeds else ""
        n = f", n = {one.n}" if one.n else ""
        data = f", {one.data}" if one.data else ""
        keys = one.records[0][:8] + (f" and {len(one.records) - 1} more" if one.records[1:] else "")
        yield f"    {one.unit}; {one.status}{data}{n}{seeds}; record {keys}"


def shown(finding: Finding) -> str:
    """A comparison with its interval and the printed value."""
    theirs = "" if finding.printed is None else f" (printed {finding.printed:.4g})"
    ends = "" if finding.interval is None else " ({:.4g} to {:.4g})".format(*finding.interval)
    return f"{finding.what}: {finding.effect:.4g}{ends}{theirs}: {finding.outcome}"
