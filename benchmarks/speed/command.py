"""``captionbench time``: time our implementations against each other, and keep the records."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from tqdm import tqdm

from benchmarks import records
from benchmarks.devices import check_device
from benchmarks.errors import InputError
from benchmarks.records import Record
from benchmarks.speed import drawn, suites
from benchmarks.speed import run as running
from benchmarks.speed.case import PRECISIONS, V2, Case
from benchmarks.speed.layers import ATTENTION
from benchmarks.speed.subjects import SUBJECTS, named
from benchmarks.speed.targets import Outcome, judge, roofline
from benchmarks.timing import Budget
from benchmarks.verify.command import QUICK

SECONDS = 3.0
LARGEST = 2**16
"""Of images and of features of one: beyond it a case is a slip of the keys."""
NONE = "none"
"""In place of expansion coefficients: attention."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "--suite",
        choices=suites.SUITES,
        default="cpu",
        help="what is timed: the targets on a CPU (default) or a GPU, where everything is first "
        "verified, or the grid of all expansion coefficients",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="NAME",
        help="of these, the cases whose names begin so; see --list",
    )
    parser.add_argument("--implementation", nargs="+", metavar="NAME", help="the first is baseline")
    parser.add_argument("--dtype", nargs="+", choices=PRECISIONS, help="precisions")
    parser.add_argument(
        "--groups",
        nargs="+",
        metavar="G",
        help=f"encoders: {NONE} (attention), 64, 128x5 (five groups), 32,64,128 or v2",
    )
    parser.add_argument(
        "--num-expansions",
        nargs="+",
        metavar="N_E",
        help=f"decoders: {NONE} (attention) or a number",
    )
    for name, what in (("batch", "images"), ("length", "features of an image")):
        parser.add_argument(f"--{name}", type=int, metavar="N", help=what)
    parser.add_argument(
        "--seed", type=int, default=drawn.SEED, help=f"of drawn shapes (default: {drawn.SEED})"
    )
    parser.add_argument("--tiny", action="store_true", help="smallest sizes, to try the command")
    parser.add_argument("--device", default="cpu", help="where PyTorch computes (default: cpu)")
    parser.add_argument("--threads", default="1", help="of the CPU: a number or all (default: 1)")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help=f"for a case's rounds (default: {SECONDS:g})"
    )
    parser.add_argument(
        "--minutes", type=float, help="begin no further case after so long; run again to go on"
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="records (default: those that your reports show)"
    )
    parser.add_argument("--json", action="store_true", help="print the records, not tables")
    parser.add_argument("--list", action="store_true", help="print what can be timed")


def run(arguments: argparse.Namespace) -> int:
    """Measure what has no record yet, and print it; 1 if an implementation is not right."""
    if arguments.list:
        for subject in SUBJECTS.values():
            print(f"{subject.name:34}{subject.about}; {', '.join(subject.implementations)}")
        return 0
    device = torch.device(check_device(arguments.device))
    threads, budget = _threads(arguments.threads), _budget(arguments.seconds)
    if arguments.minutes is not None and not arguments.minutes > 0:
        raise InputError(f"--minutes {arguments.minutes}: expected above 0")
    cases = chosen(arguments, device)
    kept = None if arguments.tiny else records.LOCAL / "timing.jsonl"
    path: Path | None = arguments.out or kept
    if path is not None and path.is_dir():
        raise InputError(f"--out {path}: is a folder, expected a file of records")
    known = records.read(path) if path and path.exists() else []
    described = running.describe(device, threads)
    made: list[Record] = []
    began = time.perf_counter()
    if arguments.suite == "gpu":
        made += _verified(device, described, known, path, arguments.json)
    bar = tqdm(cases, unit="case", file=sys.stderr, disable=None)
    left = 0
    for case in bar:
        bar.set_description(case.subject.name)
        key = running.key(case, budget, described)
        found = [record for record in known if record["key"] == key]
        if not found and arguments.minutes and time.perf_counter() - began > 60 * arguments.minutes:
            left += 1
            continue
        if not found:
            strict = arguments.implementation is not None
            found = running.time_case(case, device, threads, budget, strict=strict)
            if path:
                records.append(found, path)
        made += found
        if not arguments.json:
            bar.write("\n".join(_lines(found, made)), file=sys.stdout)
    outcomes = [o for o in judge(made) if o.verdict != "not run"]
    if arguments.json:
        print(json.dumps(made, indent=2))
    else:
        _print_outcomes(outcomes)
        print(
            f"{path}: the records" if path else "no records kept of tiny sizes (--out keeps them)"
        )
        if left:
            print(f"{left} cases are left, run again")
    verified = [record["values"] for record in made if record["kind"] == "verification"]
    return int(any(values["held"] < values["rows"] for values in verified))


def _threads(text: str) -> int:
    if text == "all":
        return os.cpu_count() or 1
    try:
        threads = int(text)
    except ValueError:
        threads = 0
    cores = os.cpu_count() or 1
    if not 1 <= threads <= cores:
        raise InputError(f"--threads {text}: expected a number from 1 to {cores}, or all")
    return threads


def _budget(seconds: float) -> Budget:
    try:
        return Budget(seconds=seconds)
    except ValueError as error:
        raise InputError(f"--seconds: {error}") from None


def chosen(arguments: argparse.Namespace, device: torch.device) -> list[Case]:
    """The suite's cases as the options narrow and change them.

    Raises:
        InputError: an option's value that no case can have, or no case is left.
    """
    if arguments.seed < 0:
        raise InputError(f"--seed {arguments.seed}: expected at least 0")
    cases = suites.SUITES[arguments.suite](arguments.seed)
    if arguments.only:
        names = {subject.name for beginning in arguments.only for subject in named(beginning)}
        cases = [case for case in cases if case.subject.name in names]
    changes = {name: getattr(arguments, name) for name in ("batch", "length")}
    changes = {name: value for name, value in changes.items() if value is not None}
    for name, value in changes.items():
        if not 1 <= value <= LARGEST:
            raise InputError(f"--{name} {value}: expected 1 to {LARGEST}")
    cases = [replace(case, sizes=replace(case.sizes, **changes)) for case in cases]
    if arguments.groups or arguments.num_expansions:
        cases = _mixed(cases, arguments.groups, arguments.num_expansions)
    if arguments.dtype:
        if device.type != "cuda" and "tf32" in arguments.dtype:
            raise InputError("--dtype tf32: expected a CUDA device, where it is (--device)")
        cases = [
            replace(case, precision=dtype)
            for case in cases
            for dtype in arguments.dtype
            if dtype in case.subject.precisions
        ]
    elif device.type != "cuda":
        cases = [case for case in cases if case.precision != "tf32"]
    if arguments.implementation:
        cases = _implemented(cases, arguments.implementation)
    if arguments.tiny:
        cases = [replace(case, sizes=case.sizes.tiny()) for case in cases]
    cases = list(dict.fromkeys(cases))
    if not cases:
        raise InputError(f"no case of --suite {arguments.suite} is left, expected at least one")
    return cases


def _mixed(
    cases: Sequence[Case], groups: Sequence[str] | None, expansions: Sequence[str] | None
) -> list[Case]:
    encoders = [_encoder(text) for text in groups or []]
    decoders = [_decoder(text) for text in expansions or []]
    found = []
    for case in cases:
        sizes = case.sizes
        found += suites.over([case], encoders or [sizes.encoder], decoders or [sizes.decoder])
    return found


def _encoder(text: str) -> str:
    if text in (NONE, "v2"):
        return V2 if text == "v2" else ATTENTION
    size, times, count = text.partition("x")
    try:
        coefficients = [int(size)] * int(count) if times else [int(n) for n in text.split(",")]
    except ValueError:
        coefficients = []
    if not coefficients or min(coefficients) < 1:
        raise InputError(f"--groups {text}: expected {NONE}, 64, 128x5, 32,64,128 or v2")
    return f"static:{','.join(map(str, coefficients))}"


def _decoder(text: str) -> str:
    if text == NONE:
        return ATTENTION
    if not text.isdecimal() or int(text) < 1:
        raise InputError(f"--num-expansions {text}: expected {NONE} or a number from 1 on")
    return f"dynamic:{int(text)}"


def _implemented(cases: Sequence[Case], names: Sequence[str]) -> list[Case]:
    known = {name for case in cases for name in case.subject.implementations}
    for name in names:
        if name not in known:
            raise InputError(
                f"--implementation {name}: none of these cases has it, expected one of "
                f"{', '.join(sorted(known))}"
            )
    found = []
    for case in cases:
        of = tuple(name for name in names if name in case.subject.implementations)
        found += [replace(case, implementations=of)] if of else []
    return found


def _verified(
    device: torch.device,
    described: dict[str, object],
    known: list[Record],
    path: Path | None,
    quiet: bool,
) -> list[Record]:
    """Whether every implementation is right here: a record of it, old or new."""
    key = running.verification_key(described, QUICK)
    found = [record for record in known if record["key"] == key]
    if not found:
        print("holding every implementation to the oracle ...", file=sys.stderr)
        found = [running.verify(device, QUICK)]
        if path:
            records.append(found, path)
    for record in found if not quiet else []:
        values = record["values"]
        print(f"{values['held']} of {values['rows']} comparisons with the oracle hold")
        for row in record["details"]["rows"]:
            if not row["passed"]:
                print(f"FAILED: {row['operator']} {row['what']} ({row['implementation']})")
    return found


def _lines(found: Sequence[Record], made: Sequence[Record]) -> list[str]:
    """A case's records as lines of a table; ``made`` has the device's ceilings."""
    lines = [f"\n{found[0]['details']['row']}"]
    for record in found:
        values, details = record["values"], record["details"]
        cells = [f"  {details['implementation']:18}"]
        if "seconds" not in values:
            cells += [f"{name} {value:.4g}" for name, value in values.items()]
            lines.append("  ".join(cells))
            continue
        low, high = 1000 * values["seconds low"], 1000 * values["seconds high"]
        cells.append(f"{1000 * values['seconds']:10.4g} ms [{low:.4g}, {high:.4g}]")
        if details["verdict"] != "baseline":
            interval = f"[{values['ratio low']:.3g}, {values['ratio high']:.3g}]"
            cells.append(f"{values['ratio']:.3g} x {interval} {details['verdict']}")
        for name in ("saved", "peak"):
            if f"{name} bytes" in values:
                cells.append(f"{name} {values[f'{name} bytes'] / 1e6:.4g} MB")
        if "flops a second" in values:
            cells.append(f"{values['flops a second'] / 1e9:.4g} GFLOP/s")
        if "least bytes a second" in values:
            cells.append(f"{values['least bytes a second'] / 1e9:.4g} GB/s")
        if reached := roofline(record, [r for r in made if r["kind"] == "timing"]):
            cells.append(f"{reached.value:.2f} of its roofline")
        lines.append("  ".join(cells))
    if "floor" in found[0]["values"]:
        floor, rounds = found[0]["values"]["floor"], found[0]["n"]
        lines.append(f"  A/A floor {floor:.3f}, {rounds} rounds")
    unavailable = found[0]["details"]["unavailable"]
    lines += [f"  {name}: not available ({why})" for name, why in unavailable.items()]
    return lines


def _print_outcomes(outcomes: Sequence[Outcome]) -> None:
    if outcomes:
        print("\ntargets")
    for outcome in outcomes:
        target = outcome.target
        print(f"  {target.what:38}{target.asked:34}{outcome.measured:28}{outcome.verdict}")
