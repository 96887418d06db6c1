"""``captionbench time``: time our implementations against each other, and keep the records."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks import records
from benchmarks.cli.candidate_options import add_candidate, claimed
from benchmarks.cli.options import add_records, own_records
from benchmarks.devices import check_device
from benchmarks.errors import InputError
from benchmarks.files import write_atomically
from benchmarks.perf import coefficient_curves, options, threads
from benchmarks.perf.candidates import check_timed, time_candidate
from benchmarks.perf.cases.subjects import SUBJECTS
from benchmarks.perf.session import Session
from benchmarks.perf.targets import judge
from benchmarks.perf.terminal import print_outcomes
from benchmarks.perf.timing import Budget
from benchmarks.verify.conformance import FAILED, QUICK, conformance_test, resolve, seed

SECONDS = 3.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    options.configure(parser)
    add_candidate(
        parser,
        "time a function against ours, and verify it before and after: "
        "package.module:callable or path/file.py:callable",
    )
    parser.add_argument("--device", default="cpu", help="where PyTorch computes (default: cpu)")
    configure_measuring(parser)
    add_records(parser)
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="FILE.svg",
        help="draw time and memory over the expansion coefficients that were timed",
    )
    parser.add_argument("--json", action="store_true", help="print the records, not tables")
    parser.add_argument("--list", action="store_true", help="print what can be timed")


def configure_measuring(parser: argparse.ArgumentParser) -> None:
    """Add the options of how to measure, whatever is measured."""
    parser.add_argument(
        "--threads",
        nargs="+",
        metavar="N",
        help="of the CPU: numbers or all, pinned to as many cores where it computes",
    )
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help=f"for a case's rounds (default: {SECONDS:g})"
    )
    parser.add_argument(
        "--minutes", type=float, help="begin no further case after so long; run again to go on"
    )
    parser.add_argument(
        "--no-flush",
        action="store_true",
        help="leave a CUDA device's cache as the call before left it (default: emptied before "
        "each call); on a CPU nothing is emptied",
    )


def session(
    arguments: argparse.Namespace,
    device: torch.device,
    path: Path | None,
    *,
    usual_threads: Sequence[str] = ("1",),
    quiet: bool = False,
) -> Session:
    """The run that the options of `configure_measuring` ask for.

    Raises:
        InputError: an option's value.
    """
    if arguments.minutes is not None and not 0 < arguments.minutes < math.inf:
        raise InputError(f"--minutes {arguments.minutes}: expected a finite number above 0")
    if arguments.no_flush and device.type != "cuda":
        raise InputError("--no-flush: makes no difference on a CPU, expected --device cuda")
    try:
        budget = Budget(seconds=arguments.seconds)
    except ValueError as error:
        raise InputError(f"--seconds: {error}") from None
    return Session(
        device,
        path,
        threads.parse(arguments.threads or usual_threads),
        budget,
        not arguments.no_flush,
        arguments.minutes,
        quiet,
    )


def run(arguments: argparse.Namespace) -> int:
    """Measure what has no record yet, and print it; 1 if something is not right or fails."""
    if arguments.list:
        _list(arguments.json)
        return 0
    device = torch.device(check_device(arguments.device))
    if arguments.candidate is not None:
        return _time_candidate(arguments, device)
    if arguments.operator or arguments.framework:
        raise InputError("--operator and --framework are for a --candidate, which is missing")
    cases = options.chosen(arguments, device)
    if arguments.plot:
        coefficient_curves.check(cases)
    with own_records(arguments, "timing.jsonl") as path:
        measuring = session(arguments, device, path, quiet=arguments.json)
        right = measuring.verify() if arguments.suite == "gpu" else True
        measuring.time(cases, strict=arguments.implementation is not None)
    curves = coefficient_curves.curves(measuring.made) if arguments.plot else []
    if curves:
        with write_atomically(arguments.plot) as file:
            file.write(coefficient_curves.draw(curves))
    if arguments.json:
        print(json.dumps(records.to_json(measuring.made), indent=2, sort_keys=True))
        return int(bool(not right or measuring.failed))
    print_outcomes([o for o in judge(measuring.made) if o.verdict != "not run"])
    print(f"{path}: the records" if path else "no records kept of tiny sizes (--out keeps them)")
    if arguments.plot:
        print(f"{arguments.plot}: {coefficient_curves.about(curves)}")
    if measuring.left:
        print(f"{measuring.left} cases are left, run again")
    return int(bool(not right or measuring.failed))


def _time_candidate(arguments: argparse.Namespace, device: torch.device) -> int:
    operator = claimed(arguments.operator)
    check_timed(operator)
    measuring = session(arguments, device, None)
    where, from_seed, quiet = arguments.candidate, seed(), arguments.json
    with resolve(where, operator, arguments.framework, arguments.device) as candidate:
        verdicts = conformance_test(operator, candidate, examples=QUICK, seed=from_seed)
        failed = [verdict.name for verdict in verdicts if verdict.status == FAILED]
        times: list[dict[str, Any]] = []
        right = not failed
        if right:
            forms = operator, candidate, measuring.budget, measuring.threads
            right, times = time_candidate(*forms, seed=from_seed, quiet=quiet)
    if quiet:
        print(json.dumps({"passed": right, "failed": failed, "times": times}, indent=2))
    elif failed:
        print(f"{candidate.name} is not {operator.name}: failed {', '.join(failed)}")
        print(f"captionbench verify --candidate {where} --operator {operator.name} shows the cases")
    return int(not right)


def _list(as_json: bool) -> None:
    if as_json:
        names = ("name", "about", "sizes", "implementations")
        described = [{name: getattr(s, name) for name in names} for s in SUBJECTS.values()]
        print(json.dumps(described, indent=2))
        return
    for subject in SUBJECTS.values():
        print(f"{subject.name:34}{subject.about}; {', '.join(subject.implementations)}")
