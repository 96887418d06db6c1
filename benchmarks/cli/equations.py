"""The command ``equations``: every equation of the papers, what stands for it, and the errata."""

from __future__ import annotations

import argparse
import json
import textwrap
from typing import Any

from benchmarks.equations import WITHOUT_COUNTERPART, entries, summary
from benchmarks.errors import InputError
from reference.equations import PAPERS
from reference.errata import ERRATA


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("--json", action="store_true", help="print the entries as a JSON list")
    parser.add_argument("--paper", metavar="PAPER", help=f"one paper: {', '.join(PAPERS)}")
    parser.add_argument("--errata", action="store_true", help="print the papers' errata instead")


def run(arguments: argparse.Namespace) -> int:
    """Print the table of equations, or the errata."""
    if arguments.paper is not None and arguments.paper not in PAPERS:
        raise InputError(f"--paper {arguments.paper}: expected one of {', '.join(PAPERS)}")
    papers = [arguments.paper] if arguments.paper else list(PAPERS)
    if arguments.errata:
        _print_errata(papers, arguments.json)
        return 0
    chosen = [entry for entry in entries() if entry["paper"] in papers]
    if arguments.json:
        print(json.dumps(chosen, indent=2))
        return 0
    for paper in papers:
        _print_paper(paper, [entry for entry in chosen if entry["paper"] == paper])
    print(summary(chosen))
    return 0


def _print_paper(paper: str, chosen: list[dict[str, Any]]) -> None:
    about = PAPERS[paper]
    print(f"{paper}: {about.title} ({about.authors}, {about.year})")
    for entry in chosen:
        if not entry["oracle"]:
            continue
        reason = WITHOUT_COUNTERPART.get((paper, entry["number"]))
        number, oracle = f"({entry['number']})", ", ".join(entry["oracle"])
        print(f"  {number:<6}{oracle}  =  {entry['counterpart'] or reason}")
        for name in entry["properties"]:
            print(f"          {name}")
    missing = [str(entry["number"]) for entry in chosen if not entry["oracle"]]
    if missing:
        print(f"  not yet: {', '.join(missing)}")
    print()


def _print_errata(papers: list[str], as_json: bool) -> None:
    chosen = [erratum for erratum in ERRATA if erratum.paper in papers]
    if as_json:
        print(json.dumps([vars(erratum) for erratum in chosen], indent=2))
        return
    for erratum in chosen:
        print(f"{erratum.paper} {erratum.where}")
        for label in ("printed", "taken", "why"):
            text = f"{label + ':':<9}{getattr(erratum, label)}"
            print(textwrap.fill(text, 96, initial_indent="  ", subsequent_indent=" " * 11))
