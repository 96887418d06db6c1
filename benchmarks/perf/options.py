"""Which cases are timed, by the command line's options."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

import torch

from benchmarks.errors import InputError
from benchmarks.perf.cases import random_shapes, suites
from benchmarks.perf.cases.case import (
    PRECISIONS,
    V2,
    Case,
    eager,
)
from benchmarks.perf.cases.expansions import ATTENTION
from benchmarks.perf.cases.subjects import SUBJECTS, named

LARGEST = 2**16
"""Of images and of features of one: beyond it a case is a slip of the keys."""
NONE = "none"
"""In place of expansion coefficients: attention."""
CHANGES = {
    "batch_size": "batch",
    "length": "length",
    "groups": "encoder",
    "num_expansions": "decoder",
}
"""Options that change a size, and which."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose cases."""
    parser.add_argument(
        "--suite",
        choices=suites.SUITES,
        default="cpu",
        help="what is timed: the targets on a CPU (default) or a GPU, where everything is first "
        "verified; the grid of all expansion coefficients; or what memory grows with",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="NAME",
        help="what is so called, or begins so, in the suite or not; see --list",
    )
    parser.add_argument("--implementation", nargs="+", metavar="NAME", help="the first is baseline")
    parser.add_argument("--precision", nargs="+", choices=PRECISIONS, help="precisions")
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
    for name, what in (("batch-size", "images"), ("length", "features of an image")):
        parser.add_argument(f"--{name}", type=int, metavar="N", help=what)
    parser.add_argument(
        "--seed", type=int, help=f"of random shapes (default: {random_shapes.SEED})"
    )
    parser.add_argument("--tiny", action="store_true", help="smallest sizes, to try the command")


def chosen(arguments: argparse.Namespace, device: torch.device) -> list[Case]:
    """The suite's cases as the options narrow and change them.

    Raises:
        InputError: an option's value that no case can have, or no case is left.
    """
    seed = random_shapes.SEED if arguments.seed is None else arguments.seed
    if seed < 0:
        raise InputError(f"--seed {seed}: expected at least 0")
    cases = suites.SUITES[arguments.suite](seed)
    if arguments.only:
        cases = _only(arguments.only, cases, device)
    if arguments.tiny:
        cases = [replace(case, sizes=case.sizes.tiny()) for case in cases]
    _check_matters(arguments, cases)
    changes = {}
    for option in ("batch_size", "length"):
        if (value := getattr(arguments, option)) is not None:
            if not 1 <= value <= LARGEST:
                raise InputError(f"{_typed(option)} {value}: expected 1 to {LARGEST}")
            changes[CHANGES[option]] = value
    cases = [replace(case, sizes=replace(case.sizes, **changes)) for case in cases]
    if arguments.groups or arguments.num_expansions:
        cases = _mixed(cases, arguments.groups, arguments.num_expansions)
    if arguments.precision:
        if device.type != "cuda" and "tf32" in arguments.precision:
            raise InputError("--precision tf32: expected a CUDA device, where it is (--device)")
        for dtype in arguments.precision if cases else []:
            if not any(dtype in case.subject.precisions for case in cases):
                raise InputError(
                    f"--precision {dtype}: makes no difference to any of {_names(cases)}"
                )
        cases = [
            replace(case, precision=dtype)
            for case in cases
            for dtype in arguments.precision
            if dtype in case.subject.precisions
        ]
    elif device.type != "cuda":
        cases = [case for case in cases if case.precision != "tf32"]
    if arguments.implementation:
        cases = _implemented(cases, arguments.implementation)
    cases = list(dict.fromkeys(cases))
    if not cases:
        raise InputError(f"no case of --suite {arguments.suite} is left, expected at least one")
    return cases


def _only(beginnings: Sequence[str], cases: Sequence[Case], device: torch.device) -> list[Case]:
    """The suite's cases of what is named; of what is in none of them, one of the usual sizes."""
    inside = {case.subject.name for case in cases}
    names: dict[str, None] = {}
    for beginning in beginnings:
        found = [subject.name for subject in named(beginning)]
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


def _check_matters(arguments: argparse.Namespace, cases: Sequence[Case]) -> None:
    """Refuse an option that would change none of the cases."""
    for option, size in CHANGES.items():
        given = getattr(arguments, option)
        if given is not None and not any(size in case.subject.sizes for case in cases):
            raise InputError(f"{_typed(option)}: makes no difference to any of {_names(cases)}")
    if arguments.seed is not None and not any(
        case.subject in random_shapes.SUBJECTS for case in cases
    ):
        raise InputError(f"--seed: no random shapes in any of {_names(cases)}")


def _typed(option: str) -> str:
    return f"--{option.replace('_', '-')}"


def _names(cases: Sequence[Case]) -> str:
    return ", ".join(dict.fromkeys(case.subject.name for case in cases)) or "no case"


def _mixed(
    cases: Sequence[Case], groups: Sequence[str] | None, expansions: Sequence[str] | None
) -> list[Case]:
    encoders = [_encoder(text) for text in groups or []]
    decoders = [_decoder(text) for text in expansions or []]
    found = []
    for case in cases:
        if case.implementations == (ATTENTION,):
            continue  # the suite's own other mixers; its expansions are among the cases too
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
