"""The command ``verify``: hold implementations, our own or somebody else's, to the oracle."""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.devices import check_device
from benchmarks.errors import InputError
from benchmarks.scoring.captioners import is_exported
from benchmarks.verify.candidate import FRAMEWORKS
from benchmarks.verify.hold import (
    Verdict,
    clearest,
    hold,
    resolve,
)
from benchmarks.verify.operators import OPERATORS, Operator
from benchmarks.verify.table import EXAMPLES, QUICK, Row, rows

CANDIDATE_EXAMPLES, CANDIDATE_QUICK = 100, 20


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "--candidate",
        metavar="WHERE",
        help="a function to hold to the oracle: package.module:callable or path/file.py:callable; "
        "or a folder of captionbench export",
    )
    parser.add_argument("--operator", metavar="NAME", help="what the candidate claims to be")
    parser.add_argument(
        "--framework", choices=FRAMEWORKS, help="what the candidate works in, if not found out"
    )
    parser.add_argument("--device", default="cpu", help="where PyTorch computes (default: cpu)")
    parser.add_argument("--examples", type=int, metavar="N", help="cases for each property")
    parser.add_argument("--quick", action="store_true", help="few cases for each property")
    parser.add_argument("--list", action="store_true", help="print the operators and signatures")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the table, or the candidate's verdicts; 1 if anything failed."""
    if arguments.list:
        _print_operators(arguments.json)
        return 0
    if arguments.examples is not None and arguments.examples < 1:
        raise InputError(f"--examples {arguments.examples}: expected at least 1")
    check_device(arguments.device)
    if arguments.candidate is None:
        if arguments.operator or arguments.framework:
            raise InputError("--operator and --framework are for a --candidate, which is missing")
        examples = arguments.examples or (QUICK if arguments.quick else EXAMPLES)
        return _verify_own(arguments.device, examples, arguments.json)
    if is_exported(Path(arguments.candidate)):
        from benchmarks.verify import exported

        if arguments.operator or arguments.framework:
            raise InputError("--operator and --framework are for functions, not for a folder")
        operator, where = exported.operator(Path(arguments.candidate)), exported.CANDIDATE
    elif Path(arguments.candidate).is_dir():
        raise InputError(f"--candidate {arguments.candidate}: not a folder of captionbench export")
    elif arguments.operator not in OPERATORS:
        given = "is missing" if arguments.operator is None else f"{arguments.operator!r} is unknown"
        raise InputError(f"--operator {given}: expected one of {', '.join(OPERATORS)}")
    else:
        operator, where = OPERATORS[arguments.operator], arguments.candidate
    candidate = resolve(where, operator, arguments.framework, arguments.device)
    examples = arguments.examples or (CANDIDATE_QUICK if arguments.quick else CANDIDATE_EXAMPLES)
    verdicts = hold(operator, candidate, examples)
    if arguments.json:
        print(json.dumps([asdict(verdict) for verdict in verdicts], indent=2))
    else:
        print(f"{candidate.name} ({candidate.framework}) as {operator.name}, {examples} cases each")
        _print_verdicts(verdicts)
    return int(not all(verdict.passed for verdict in verdicts))


def _verify_own(device: str, examples: int, as_json: bool) -> int:
    found: list[Row] = []
    header = "operator", "equations", "of", "implementation", "dtype", "device", "cases"
    if not as_json:
        print(_line((*header, "worst error", "bound", "verdict")))
    for row in rows(device, examples):
        found.append(row)
        if not as_json:
            words = row.operator, row.numbers, row.what, row.implementation, row.dtype, row.device
            numbers = str(row.cases), f"{row.worst:.2g}", f"{row.bound:.2g}"
            print(_line((*words, *numbers, "ok" if row.passed else "FAILED")), flush=True)
    failed = [row for row in found if not row.passed]
    if as_json:
        print(json.dumps([row.to_dict() for row in found], indent=2))
    else:
        print("errors and bounds are relative to the largest entry of the oracle's result")
        print(f"{len(found) - len(failed)} of {len(found)} hold")
    return int(bool(failed))


WIDTHS = 23, 21, 9, 15, 9, 7, 6, 12, 9, 7


def _line(cells: Sequence[str]) -> str:
    return " ".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=True)).rstrip()


def _print_verdicts(verdicts: Sequence[Verdict]) -> None:
    for verdict in verdicts:
        print(f"  {'ok' if verdict.passed else 'FAILED':<7}{verdict.property:<17}{verdict.says}")
        if not verdict.passed:
            print(f"{'':<26}{verdict.message}")
    failed = [verdict for verdict in verdicts if not verdict.passed]
    if failed:
        shown = clearest(failed)
        print(f"\nthe smallest case found on which {shown.property} fails, for a test:\n")
        print(shown.code)
    print(f"\n{len(verdicts) - len(failed)} of {len(verdicts)} properties hold")


def _print_operators(as_json: bool) -> None:
    if as_json:
        print(json.dumps([_described(operator) for operator in OPERATORS.values()], indent=2))
        return
    for operator in OPERATORS.values():
        print(operator.signature)
        print(textwrap.fill(operator.about, 96, initial_indent="    ", subsequent_indent="    "))
        names = ", ".join(prop.name for prop in operator.properties)
        print(textwrap.fill(names, 96, initial_indent="    held to: ", subsequent_indent=" " * 13))
    print()
    for line in (
        "Arguments are passed by position, arrays as NumPy arrays or PyTorch tensors.",
        "A function with an argument named lengths gets a padded batch: the sequences with a batch "
        "axis in front, and by that name the number of valid rows of the last of them. What it "
        "gives for padded rows does not matter.",
    ):
        print(textwrap.fill(line, 96))


def _described(operator: Operator) -> dict[str, object]:
    return {
        "name": operator.name,
        "signature": operator.signature,
        "about": operator.about,
        "equations": operator.equations,
        "properties": {prop.name: prop.says for prop in operator.properties},
    }
