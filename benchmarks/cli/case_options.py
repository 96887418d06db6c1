"""The options that choose the cases to time or to predict."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch

from benchmarks.cli.options import at_least, starting_with
from benchmarks.errors import InputError
from benchmarks.perf.cases import suites
from benchmarks.perf.cases.case import PRECISIONS, V2, Case, eager
from benchmarks.perf.cases.expansions import ATTENTION
from benchmarks.perf.cases.suites import SUBJECTS

LARGEST = 2**16
"""The most images, and features of one, that are accepted, against typing errors."""
NONE = "none"
"""In place of expansion coefficients: attention."""
SIZES = {
    "batch_size": "batch",
    "length": "length",
    "groups": "encoder",
    "num_expansions": "decoder",
}
"""Options that change a size, and the field of `Sizes`."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--suite",
        choices=suites.SUITES,
        default="cpu",
        help="what is timed: the targets on a CPU (default) or a GPU, where everything is first "
        "verified; the grid of all expansion coefficients; or how memory grows",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="NAME",
        help="cases by name or its beginning, in the suite or not; see --list",
    )
    parser.add_argument(
        "--implementation", nargs="+", metavar="NAME", help="the first is the baseline"
    )
    parser.add_argument("--precision", nargs="+", choices=PRECISIONS, help="precisions")
    parser.add_argument(
        "--groups",
        nargs="+",
        type=_encoder,
        metavar="G",
        help=f"encoders: {NONE} (attention), 64, 128x5 (five groups), 32,64,128 or v2",
    )
    parser.add_argument(
        "--num-expansions",
        nargs="+",
        type=_decoder,
        metavar="N_E",
        help=f"decoders: {NONE} (attention) or a number",
    )
    for name, what in (("batch-size", "images"), ("length", "features of an image")):
        parser.add_argument(f"--{name}", type=at_least(1, LARGEST), metavar="N", help=what)
    parser.add_argument(
        "--seed",
        type=at_least(0),
        help=f"seed of random shapes (default: {suites.SEED}) or of a candidate's cases (random)",
    )
    parser.add_argument("--tiny", action="store_true", help="smallest sizes, to try the command")


def _encoder(text: str) -> str:
    if text in (NONE, "v2"):
        return V2 if text == "v2" else ATTENTION
    size, by, count = text.partition("x")
    try:
        times = min(int(count), LARGEST + 1) if by else 1
        groups = [int(n) for n in size.split(",")] * times
    except ValueError:
        groups = []
    if not groups or min(groups) < 1 or sum(groups) > LARGEST:
        raise argparse.ArgumentTypeError(
            f"{text}, expected {NONE}, 64, 128x5, 32,64,128 or v2, in all at most {LARGEST:,}"
        )
    return f"static:{','.join(map(str, groups))}"


def _decoder(text: str) -> str:
    if text == NONE:
        return ATTENTION
    if not text.isdecimal() or not 1 <= int(text) <= LARGEST:
        raise argparse.ArgumentTypeError(f"{text}, expected {NONE} or 1 to {LARGEST:,}")
    return f"dynamic:{int(text)}"


def chosen(arguments: argparse.Namespace, device: torch.device) -> list[Case]:
    """The suite's cases, selected and changed by the options.

    Raises:
        InputError: an option makes no difference to any case, or no case is left.
    """
    seed = suites.SEED if arguments.seed is None else arguments.seed
    cases = suites.SUITES[arguments.suite](seed)
    if arguments.only:
        cases = _only(arguments.only, cases, device)
    if arguments.tiny:
        cases = [replace(case, sizes=case.sizes.tiny()) for case in cases]
    given = {name: value for name in SIZES if (value := getattr(arguments, name)) is not None}
    for option in given:
        if not any(SIZES[option] in case.subject.sizes for case in cases):
            _no_difference(option, cases)
    if arguments.seed is not None and not any(case.subject in suites.RANDOM for case in cases):
        raise InputError(
            f"--seed: no random shapes in any of {_names(cases)}, expected --only random-..."
        )
    numbers: dict[str, Any] = {SIZES[name]: n for name, n in given.items() if isinstance(n, int)}
    cases = [replace(case, sizes=replace(case.sizes, **numbers)) for case in cases]
    if arguments.groups or arguments.num_expansions:
        cases = [
            mixed
            for case in cases
            # not the suite's attention cases: they are there with expansions too
            if case.implementations != (ATTENTION,)
            for mixed in suites.over(
                [case],
                arguments.groups or [case.sizes.encoder],
                arguments.num_expansions or [case.sizes.decoder],
            )
        ]
    cases = _in_precisions(cases, arguments.precision, device)
    if arguments.implementation:
        cases = _implemented(cases, arguments.implementation)
    cases = list(dict.fromkeys(cases))
    if not cases:
        raise InputError(f"no case of --suite {arguments.suite} is left, expected at least one")
    return cases


def _only(beginnings: Sequence[str], cases: Sequence[Case], device: torch.device) -> list[Case]:
    """The suite's cases of the named subjects; for a subject without any, one of default sizes."""
    inside = {case.subject.name for case in cases}
    names: dict[str, None] = {}
    for beginning in beginnings:
        found = starting_with(SUBJECTS, [beginning], "case")
        names |= dict.fromkeys([n for n in found if n in inside or n == beginning] or found)
    chosen = [case for case in cases if case.subject.name in names]
    for name in (name for name in names if name not in inside):
        here = [
            implementation
            for implementation in SUBJECTS[name].implementations
            if device.type == "cuda"
            or (eager(implementation) == implementation and implementation != "fused")
        ]
        chosen.append(Case(SUBJECTS[name], tuple(here)))
    return chosen


def _no_difference(option: str, cases: Iterable[Case]) -> None:
    typed = f"--{option.replace('_', '-')}"
    raise InputError(f"{typed}: makes no difference to any of {_names(cases)}")


def _names(cases: Iterable[Case]) -> str:
    return ", ".join(dict.fromkeys(case.subject.name for case in cases)) or "no case"


def _in_precisions(
    cases: Sequence[Case], precisions: Sequence[str] | None, device: torch.device
) -> list[Case]:
    """The cases in each of the given precisions; without any, in the suite's."""
    if not precisions:
        return [c for c in cases if c.precision != "tf32" or device.type == "cuda"]
    if device.type != "cuda" and "tf32" in precisions:
        raise InputError("--precision tf32: expected a CUDA device, where it is (--device)")
    for precision in precisions if cases else []:
        if not any(precision in case.subject.precisions for case in cases):
            _no_difference(f"precision {precision}", cases)
    return [
        replace(case, precision=precision)
        for case in cases
        for precision in precisions
        if precision in case.subject.precisions
    ]


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
