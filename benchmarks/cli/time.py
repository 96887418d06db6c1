"""``captionbench time``: time our implementations against each other, and keep the records."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from benchmarks import records
from benchmarks.cli import case_options
from benchmarks.cli.candidate_options import add_candidate
from benchmarks.cli.options import above_0, add_records, check_device, own_records, thread_count
from benchmarks.cli.terminal import grid
from benchmarks.errors import InputError
from benchmarks.files import write_atomically
from benchmarks.kinds import Measured
from benchmarks.perf import coefficient_curves
from benchmarks.perf.candidates import check_timed, time_candidate
from benchmarks.perf.cases.suites import SUBJECTS
from benchmarks.perf.session import Session
from benchmarks.perf.targets import amounts, evaluate_targets, roofline
from benchmarks.perf.timing import Budget
from benchmarks.records import Record, of_kind
from benchmarks.verify.conformance import FAILED, QUICK_EXAMPLES, conformance_test, new_seed
from benchmarks.verify.detection import resolve
from benchmarks.verify.operators import get_operator

SECONDS = 3.0

OF_OURS = (
    *("only", "implementation", "precision", "groups", "num_expansions", "batch_size", "length"),
    *("tiny", "minutes", "out", "plot"),
)
"""Options that a candidate does not have."""


def configure(parser: argparse.ArgumentParser) -> None:
    add_candidate(
        parser,
        "time a function against ours, and verify it before and after: "
        "package.module:callable or path/file.py:callable",
    )
    case_options.configure(parser)
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
    """Add the options of `session`."""
    parser.add_argument(
        "--threads",
        nargs="+",
        type=thread_count,
        metavar="N",
        help="CPU threads: numbers or all, pinned to as many cores where it computes",
    )
    parser.add_argument(
        "--seconds",
        type=above_0,
        default=SECONDS,
        help=f"for a case's rounds (default: {SECONDS:g})",
    )
    parser.add_argument(
        "--minutes",
        type=above_0,
        metavar="N",
        help="start no further case after N minutes; run again to resume",
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
    usual_threads: Sequence[int] = (1,),
) -> Session:
    """The session that the options of `configure_measuring` describe.

    Raises:
        InputError: an option makes no difference, or ``path`` is not a file of records.
    """
    if arguments.no_flush and device.type != "cuda":
        raise InputError("--no-flush: makes no difference on a CPU, expected --device cuda")
    return Session(
        device,
        path,
        list(dict.fromkeys(arguments.threads or usual_threads)),
        Budget(seconds=arguments.seconds),
        not arguments.no_flush,
        arguments.minutes,
    )


def run(arguments: argparse.Namespace) -> int:
    """Measure what has no record yet, and print it; 1 if an implementation is wrong or fails."""
    if arguments.list:
        _list(arguments.json)
        return 0
    device = torch.device(check_device(arguments.device))
    if arguments.candidate is not None:
        return _time_candidate(arguments, device)
    if arguments.operator or arguments.framework:
        raise InputError("--operator and --framework are for a --candidate, which is missing")
    cases = case_options.chosen(arguments, device)
    if arguments.plot:
        coefficient_curves.check(cases)
    with own_records(arguments, "timing.jsonl") as path:
        measuring = session(arguments, device, path)
        verifies = arguments.suite == "gpu" or device.type == "cuda"
        right = not verifies or print_verification(measuring.verify(), quiet=arguments.json)
        for timed in measuring.time(cases, strict=arguments.implementation is not None):
            if timed and not arguments.json:
                tqdm.write("\n".join(lines(timed, measuring.records)), file=sys.stdout)
    curves = coefficient_curves.curves(measuring.records) if arguments.plot else []
    if curves:
        with write_atomically(arguments.plot) as file:
            file.write(coefficient_curves.draw(curves))
    if arguments.json:
        print(json.dumps(records.to_json(measuring.records), indent=2, sort_keys=True))
        return int(bool(not right or measuring.failed))
    if results := [one for one in evaluate_targets(measuring.records) if one.evidence]:
        print("\ntargets")
        rows = [
            (j.target.what, j.target.bound_text, j.measured, j.verdict, j.device) for j in results
        ]
        print("\n".join(f"  {line}" for line in grid(rows, left=5)))
    print(f"{path}: the records" if path else "no records kept of tiny sizes (--out keeps them)")
    if arguments.plot:
        print(f"{arguments.plot}: {coefficient_curves.about(curves)}")
    if measuring.left:
        print(f"{measuring.left} cases not done; run the same command to resume")
    return int(bool(not right or measuring.failed))


def _time_candidate(arguments: argparse.Namespace, device: torch.device) -> int:
    operator = get_operator(arguments.operator, "--operator")
    check_timed(operator)
    for name in OF_OURS:
        if getattr(arguments, name):
            typed = f"--{name.replace('_', '-')}"
            raise InputError(
                f"{typed} is for our own: expected none with a --candidate, of the papers' sizes"
            )
    measuring = session(arguments, device, None)
    where, quiet = arguments.candidate, arguments.json
    from_seed = new_seed() if arguments.seed is None else arguments.seed
    if not quiet:
        print(f"{where} as {operator.name}: verified, then timed, --seed {from_seed}", flush=True)
    with resolve(where, operator, arguments.framework, arguments.device) as candidate:
        verdicts = conformance_test(operator, candidate, examples=QUICK_EXAMPLES, seed=from_seed)
        failed = [verdict.name for verdict in verdicts if verdict.status == FAILED]
        times: list[dict[str, Any]] = []
        right = not failed
        if right:
            forms = operator, candidate, measuring.budget, measuring.threads
            right, times = time_candidate(*forms, seed=from_seed, quiet=quiet)
    if quiet:
        found = {"passed": right, "seed": from_seed, "failed": failed, "times": times}
        print(json.dumps(found, indent=2))
    elif failed:
        print(f"{candidate.name} is not {operator.name}: failed {', '.join(failed)}")
        claim = f"--candidate {where} --operator {operator.name} --seed {from_seed}"
        print(f"captionbench verify {claim} shows the cases")
    return int(not right)


def print_verification(verified: Sequence[Record], *, quiet: bool = False) -> bool:
    """Print how many comparisons with the oracle pass, and which fail; whether all pass."""
    rows = [row for record in verified for row in record.details.rows]
    passed = sum(row.passed for row in rows)
    if not quiet:
        print(f"{passed} of {len(rows)} comparisons with the oracle pass")
        for row in rows:
            if not row.passed:
                print(f"FAILED: {row.operator} {row.what} ({row.implementation})")
    return passed == len(rows)


def lines(timed: Sequence[Record], known: Sequence[Record]) -> Iterator[str]:
    """A case's records as lines of a table; ``known`` has the device's ceilings."""
    first = timed[0]
    yield f"\n{first.details.row}, {first.device.label}"
    same_device = [r for r in of_kind(known, Measured) if r.device.label == first.device.label]
    rows = [[r.details.implementation, *_cells(r, same_device)] for r in timed]
    yield from (f"  {line}" for line in grid(rows, left=len(rows[0])))
    if "floor" in first.values:
        jumps = first.details.jumps
        jumped = f", {jumps} more discarded: the clock jumped" if jumps else ""
        yield f"  A/A floor {first.values['floor']:.3f}, {first.n} rounds{jumped}"
    for name, why in first.details.unavailable.items():
        yield f"  {name}: not available ({why})"


def _cells(record: Record, same_device: Sequence[Record]) -> list[str]:
    """Time, ratio, then what else a record says."""
    values, details = record.values, record.details
    if "seconds" not in values:
        return ["  ".join(f"{name} {value:.4g}" for name, value in values.items())]
    low, high = 1000 * values["seconds low"], 1000 * values["seconds high"]
    ratio = ""
    if details.verdict != "baseline":
        interval = f"[{values['ratio low']:.3g}, {values['ratio high']:.3g}]"
        ratio = f"{values['ratio']:.3g} x {interval} {details.verdict}"
    more = amounts(values)
    if reached := roofline(record, same_device):
        more.append(f"{reached.value:.2f} of its roofline")
    return [f"{1000 * values['seconds']:.4g} ms [{low:.4g}, {high:.4g}]", ratio, "  ".join(more)]


def _list(as_json: bool) -> None:
    if as_json:
        names = ("name", "about", "sizes", "implementations")
        described = [{name: getattr(s, name) for name in names} for s in SUBJECTS.values()]
        print(json.dumps(described, indent=2))
        return
    for subject in SUBJECTS.values():
        print(f"{subject.name:34}{subject.about}; {', '.join(subject.implementations)}")
