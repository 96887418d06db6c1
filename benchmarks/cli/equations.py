"""``captionbench equations``: the papers' equations, their oracle and PyTorch form, the errata."""

from __future__ import annotations

import argparse
import json
import textwrap
from typing import Any

from benchmarks.cli.options import add_json
from benchmarks.equations import (
    WITHOUT_COUNTERPART,
    entries,
    notes,
    operators,
    summary,
)
from benchmarks.errors import InputError
from reference.equations import PAPERS

ROW = "  {:<20} {:<12} {:<18} {}"


def configure(parser: argparse.ArgumentParser) -> None:
    add_json(parser)
    parser.add_argument("paper", nargs="?", metavar="PAPER", help=f"one: {', '.join(PAPERS)}")
    parser.add_argument(
        "--errata", action="store_true", help="print the papers' errata and our decisions instead"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the table of equations, or the errata."""
    if arguments.paper is not None and arguments.paper not in PAPERS:
        raise InputError(f"unknown paper {arguments.paper!r}, expected one of {', '.join(PAPERS)}")
    papers = [arguments.paper] if arguments.paper else list(PAPERS)
    listed = notes() if arguments.errata else entries()
    chosen: list[dict[str, Any]] = [entry for entry in listed if entry["paper"] in papers]
    if not arguments.errata:
        verified = operators()
        for entry in chosen:
            entry["operators"] = verified.get((entry["paper"], entry["number"]), [])
    if arguments.json:
        print(json.dumps(chosen, indent=2))
    elif arguments.errata:
        _print_notes(chosen)
    else:
        for paper in papers:
            _print_paper(paper, [entry for entry in chosen if entry["paper"] == paper])
        print(summary(chosen))
        computed = [entry["operators"] for entry in chosen if entry["kind"] == "computation"]
        named = sum(map(bool, computed))
        print(f"{named} of {len(computed)} computations have an operator of captionbench verify")
    return 0


def _print_paper(paper: str, chosen: list[dict[str, Any]]) -> None:
    about = PAPERS[paper]
    print(f"{paper}: {about.title} ({about.authors}, {about.year})")
    print(ROW.format("equation", "kind", "print", "oracle  =  counterpart"))
    for entry in chosen:
        number = entry["number"]
        label = f"({number})" if isinstance(number, int) else number
        counterpart = entry["counterpart"] or WITHOUT_COUNTERPART.get((paper, number))
        said = sorted({note["kind"] for note in entry["notes"]})
        names = f"{entry['oracle']}  =  {counterpart}" if entry["oracle"] else "not yet"
        print(ROW.format(label, entry["kind"] or "", ", ".join(said) or "as printed", names))
        for line in (*entry["formula"], *entry["properties"]):
            print(f"      {line}")
        if entry["definition"]:
            print(f"      definition: {entry['definition']}")
        if entry["operators"]:
            print(f"      verify: {', '.join(entry['operators'])}")
    print()


def _print_notes(chosen: list[dict[str, Any]]) -> None:
    for note in chosen:
        print(f"{note['paper']} {note['where']}: {note['kind']}")
        for label in ("printed", "taken", "why"):
            text = f"{label + ':':<9}{note[label]}"
            print(textwrap.fill(text, 96, initial_indent="  ", subsequent_indent=" " * 11))
    kinds = [note["kind"] for note in chosen]
    print(f"{kinds.count('erratum')} errata and {kinds.count('decision')} decisions")
