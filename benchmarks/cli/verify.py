"""``captionbench verify``: the conformance test of our implementations, or of a candidate."""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import sys
import textwrap
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from benchmarks.cli.candidate_options import add_candidate
from benchmarks.errors import InputError
from benchmarks.verify import conformance, detection
from benchmarks.verify.backward import BETWEEN, SECONDS
from benchmarks.verify.conformance import FAILED, NOT_RUN, Verdict
from benchmarks.verify.earlier import EVERY, NEWEST, RECORDED_BYTES
from benchmarks.verify.operators import OPERATORS, Operator, Property, get_operator
from benchmarks.verify.process import CALL_TIMEOUT, MEMORY, Isolated, Limits
from benchmarks.verify.search import MANY
from benchmarks.verify.settings import SETTINGS
from benchmarks.verify.tolerances import (
    DIFFERENCES,
    FLOAT32_GRADIENT,
    FLOAT64,
    LITERAL_FACTOR,
    SMOOTHED,
    ULPS,
    UNITS,
)

# PyTorch is imported only where it is needed, so that --list and --help are quick
if TYPE_CHECKING:
    from benchmarks.kinds import Verified

GIB = 2**30
MOST = 2**20
"""The largest limits: 12 days, or more memory than machines have."""


def configure(parser: argparse.ArgumentParser) -> None:
    add_candidate(
        parser,
        "a function to test: package.module:callable or path/file.py:callable; or a folder of "
        "captionbench export; without it, our own implementations are tested",
    )
    parser.add_argument("--device", default="cpu", help="where PyTorch computes (default: cpu)")
    about = "small cases for each property, half for those that call several times (default: up to "
    about += f"{conformance.EXAMPLES}, as many as {conformance.SECONDS:g} seconds allow)"
    parser.add_argument("--examples", type=int, metavar="N", help=about)
    parser.add_argument("--quick", action="store_true", help="few cases for each property")
    parser.add_argument(
        "--seed", type=int, metavar="N", help="seed of the cases (default: another one in each run)"
    )
    parser.add_argument(
        "--time-limit",
        type=float,
        default=CALL_TIMEOUT,
        metavar="SECONDS",
        help="the longest that a call may take, without what it waits for a busy processor "
        "(default: %(default)g)",
    )
    parser.add_argument(
        "--memory-limit",
        type=float,
        default=MEMORY / GIB,
        metavar="GIB",
        help="what the candidate may allocate on the host, besides memory that processes share "
        "(default: %(default)g)",
    )
    parser.add_argument(
        "--time", action="store_true", help="time a right candidate against ours, see time"
    )
    parser.add_argument(
        "--list", action="store_true", help="print the operators, or that of --operator"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the table, or the candidate's verdicts; 1 if anything failed."""
    if arguments.list:
        name = arguments.operator
        chosen = [get_operator(name, "--operator")] if name else [*OPERATORS.values()]
        _print_operators(chosen, arguments.json)
        return 0
    if arguments.examples is not None and arguments.examples < 1:
        raise InputError(f"--examples {arguments.examples}: expected at least 1")
    if arguments.seed is not None and arguments.seed < 0:
        raise InputError(f"--seed {arguments.seed}: expected at least 0")
    for name in ("time_limit", "memory_limit"):
        if not 0 < getattr(arguments, name) <= MOST:
            option = f"--{name.replace('_', '-')} {getattr(arguments, name):g}"
            raise InputError(f"{option}: expected more than 0 and at most {MOST:,}")
    if arguments.device != "cpu":
        from benchmarks.cli.options import check_device

        check_device(arguments.device)
    _reuse_freed_memory()
    if arguments.candidate is None:
        return _verify_own(arguments)
    operator, where = _claimed(arguments)
    if arguments.time:
        from benchmarks.perf.candidates import check_timed

        check_timed(operator)
    of = where, operator, arguments.framework, arguments.device, _limits(arguments)
    conformance.prepare(operator)
    with detection.resolve(*of) as candidate:
        return _verify(operator, candidate, arguments)


_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def _reuse_freed_memory() -> None:
    """Let glibc reuse freed memory for the oracle's large arrays: page faults cost seconds."""
    with suppress(AttributeError, OSError):  # not glibc
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_MAX, 0)
        libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def _limits(arguments: argparse.Namespace) -> Limits:
    return Limits(arguments.time_limit, int(arguments.memory_limit * GIB))


def _claimed(arguments: argparse.Namespace) -> tuple[Operator, str]:
    """The operator that the candidate claims to be, and where the candidate is."""
    if os.path.isdir(arguments.candidate):  # noqa: PTH112 - to Path, a long name is an error
        from benchmarks.scoring.captioners import is_exported
        from benchmarks.verify import exported

        if not is_exported(Path(arguments.candidate)):
            raise InputError(
                f"--candidate {arguments.candidate}: expected a folder of captionbench export"
            )
        if arguments.operator or arguments.framework:
            raise InputError("--operator and --framework are for functions, not for a folder")
        return exported.operator(Path(arguments.candidate)), exported.CANDIDATE
    return get_operator(arguments.operator, "--operator"), arguments.candidate


def _verify(operator: Operator, candidate: Isolated, arguments: argparse.Namespace) -> int:
    usual, quick = conformance.EXAMPLES, conformance.QUICK_EXAMPLES
    examples = arguments.examples or (quick if arguments.quick else usual)
    limit = conformance.QUICK_SECONDS if arguments.quick else conformance.SECONDS
    seconds = inf if arguments.examples else limit
    from_seed = conformance.new_seed() if arguments.seed is None else arguments.seed
    quiet = arguments.json
    if not quiet:
        what = f"{candidate.name} ({candidate.framework}) as {operator.name}"
        print(f"{what}: up to {examples} cases each, --seed {from_seed}", flush=True)
    verdicts = []
    show = partial(_show_running, operator)
    for verdict in conformance.conformance_test(
        operator, candidate, examples=examples, seed=from_seed, on_start=show, seconds=seconds
    ):
        verdicts.append(verdict)
        if not quiet:
            _print_verdict(verdict)
    failed = [verdict for verdict in verdicts if verdict.status == FAILED]
    found = {
        "candidate": candidate.name,
        "framework": candidate.framework,
        "operator": operator.name,
        "examples": examples,
        "seed": from_seed,
        "passed": not failed,
        "printed": candidate.printed(),
        "properties": [asdict(verdict) for verdict in verdicts],
    }
    if not quiet:
        _print_summary(verdicts, failed, candidate.printed(), few=examples < MANY)
    right = not failed
    if right and arguments.time:
        from benchmarks.perf.candidates import time_candidate
        from benchmarks.perf.timing import Budget

        right, times = time_candidate(
            operator, candidate, Budget(), [1], seed=from_seed, quiet=quiet
        )
        found |= {"time": times, "passed": right}
    if quiet:
        print(json.dumps(found, indent=2))
    return int(not right)


def _show_running(operator: Operator, prop: Property) -> None:
    if sys.stderr.isatty():
        of = operator.properties
        line = f"{of.index(prop) + 1} of {len(of)}: {prop.name}"
        print(line.ljust(60), end="\r", file=sys.stderr, flush=True)


def _print_verdict(verdict: Verdict) -> None:
    if verdict.status != NOT_RUN:  # those are in the summary
        label = "FAILED" if verdict.status == FAILED else "ok"
        print(f"  {label:<7}{verdict.name:<27} {verdict.says}", flush=True)
        if verdict.message:
            print(f"{'':<37}{verdict.message}", flush=True)


FEW = f"not run with fewer than {MANY} cases: most of the large ones"


def _print_summary(
    verdicts: Sequence[Verdict], failed: Sequence[Verdict], printed: str, *, few: bool
) -> None:
    if failed:
        shown = conformance.clearest(failed)
        if printed:
            print(f"\nthe end of what the candidate printed:\n\n{textwrap.indent(printed, '    ')}")
        print(f"\nthe smallest case found on which {shown.name} fails, for a test:\n")
        print(shown.code)
    print()
    without: dict[str, list[str]] = {}
    for verdict in verdicts:
        if verdict.status == NOT_RUN:
            without.setdefault(verdict.message, []).append(verdict.name)
    for reason, names in without.items():
        print(textwrap.fill(f"not run, {reason}: {', '.join(names)}", 96, subsequent_indent="    "))
    passed = sum(verdict.passed for verdict in verdicts)
    skipped = len(verdicts) - passed - len(failed)
    left = f", {skipped} not run" if skipped else ""
    sizes: dict[str, int] = {}
    for verdict in verdicts:
        sizes |= {name: max(size, sizes.get(name, 0)) for name, size in verdict.sizes.items()}
    of = ", ".join(f"{name} {size}" for name, size in sizes.items())
    largest = of and f"; largest sizes, not all in one case: {of}"
    if few:
        print(FEW)
    wrong = f", {len(failed)} failed" if failed else ""
    print(f"{passed} of {len(verdicts)} properties passed{wrong}{left}{largest}")


def _verify_own(arguments: argparse.Namespace) -> int:
    from benchmarks.verify import table

    for name in ("framework", "time"):
        if getattr(arguments, name):
            raise InputError(f"--{name} is for a --candidate, which is missing")
    only = arguments.operator and get_operator(arguments.operator, "--operator").name
    usual, quick = conformance.PROJECT_EXAMPLES, conformance.PROJECT_QUICK_EXAMPLES
    examples = arguments.examples or (quick if arguments.quick else usual)
    found: list[Verified] = []
    header = "operator", "equations", "compared", "implementation", "dtype", "device", "cases"
    if not arguments.json:
        print(_line((*header, "worst error", "bound", "verdict")))
    for row in table.rows(
        arguments.device,
        examples,
        (only,) if only else (),
        _limits(arguments),
        arguments.seed or 0,
    ):
        found.append(row)
        if not arguments.json:
            print(_own_line(row), flush=True)
    failed = [row for row in found if not row.passed]
    if arguments.json:
        print(json.dumps([structs.asdict(row) for row in found], indent=2))
    else:
        for row in failed:
            of = f"{row.operator}, {row.implementation}, {row.dtype}"
            for failure in row.failures:
                print(f"\n{of}: {failure['property']}: {failure['message']}\n\n{failure['code']}")
        if failed:
            print(
                f"\nafter a failure others are tested for {conformance.PATIENCE:g} s: rows may be "
                "missing"
            )
        print("errors and bounds are relative to the largest entry of the oracle's result")
        if examples < MANY:
            print(FEW)
        passed = f"{len(found) - len(failed)} of {len(found)} passed"
        print(passed if found else f"this project has no implementation of {only} of its own")
    return int(bool(failed))


def _own_line(row: Verified) -> str:
    of = row.operator, row.numbers, row.what, row.implementation, row.dtype, row.device
    errors = ["inf" if x is None else f"{x:.2g}" for x in (row.worst, row.bound)]
    return _line((*of, str(row.cases), *errors, "ok" if row.passed else "FAILED"))


WIDTHS = 23, 21, 9, 15, 9, 7, 6, 12, 9, 7


def _line(cells: Sequence[str]) -> str:
    return " ".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=True)).rstrip()


LOWER = [name for name in UNITS if name != "float64"]
CALLED = (
    "Sizes go down to 1, numbers up to thousands, the largest of an array of several down to a "
    "sixteenth, unless all are 0, log-probabilities down to a hundred thousand below 0, words up "
    "to 41 letters: what is wrong beyond these, or beyond the largest sizes "
    "that are printed, is not seen, nor what is wrong at special numbers, as whole ones or -0, "
    "or at a size between those of small cases, multiples of tiles, one more, and the papers'. "
    "Each large size is tested alone and with others; of outputs "
    "all are large together too, up to 145 tokens, 10 sequences of 34, 9 heads or beams of 8 of "
    "257 words (3 of 10,001 in 12 tokens); of gradients, but of captioner, up to 66 tokens, 131 "
    "channels and 10,001 words. "
    "PyTorch functions are called in float64, float32, bfloat16 and float16 (the properties of an "
    "operator say in which), with gradients and without, of large cases in no_grad or "
    "inference_mode; others in the first two. "
    "Arguments are passed by position, arrays as NumPy arrays, PyTorch tensors or JAX arrays, "
    "rates and other numbers as Python's: with arrays in float64 they must not be rounded to "
    "float32. Mappings are in any order. Arguments must not be changed, by a backward pass either, "
    "nor a list, mapping or array in them be replaced, though by an equal one. Nor may a later "
    f"call write into results, or small arguments (compared are the last {NEWEST}, before them one "
    f"of {EVERY}, of {RECORDED_BYTES >> 20} MiB together), and nothing may be kept from one call "
    "to the next: the same arrays, lists and models come again with other numbers or options, as "
    "views, too, as parameters beside plain inputs or results, and in each of PyTorch's modes (a "
    "tensor with another version, which it does not get from what is given to its .data, by "
    "NumPy, or by PyTorch's fused optimisers), other arrays with the identity and in the memory of "
    "those before, as parts of one, and as what was returned last, and others that "
    "are alike, reversed, with two numbers or words exchanged or one changed, or numbers moved by "
    "a little, scaled, negated or shifted (in 16 bits exchanged, changed or negated; of large "
    "upstream gradients few, in one way). A result that is kept for what is alike in another way "
    f"is not seen. Up to {BETWEEN} other calls (as many as {SECONDS} seconds allow), without "
    "gradients, too, whose results are freed, "
    "come before a backward pass, when the call's own inputs and results may be freed, but are not "
    "written to. A second one through "
    "a graph may raise, for what was saved is released; gradients are those of backward() and of "
    "torch.autograd.grad. Nor may a call change a global "
    f"setting, nor what converts or frees its result: {SETTINGS}. "
    "What a file sets when it is imported holds for its calls, and is not judged; one that cannot "
    "be imported every time is bad input. Two processes, in which Python iterates over sets of "
    "names in different orders, must give the same.",
    "JAX compiles every operation anew for each shape: its candidates take minutes, with --quick "
    "too. Derivatives are compiled as a whole, where no branch depends on values.",
    "A candidate runs in a process of its own. The oracle and all comparisons, of contiguous "
    "arguments after a call too, are out of its reach: what passes has computed its results "
    "from the arguments. A result is read and sent before anything else is called, by types "
    "alone, by the functions that NumPy, PyTorch and Python had before it was imported, on a "
    "CPU by no operator of PyTorch's: replacing them changes nothing. Its own process it "
    "governs all the same. To compute a result when it is read instead of in its function, it "
    "could rewrite JAX's functions, the few lines of the kit there, their variables or their "
    "connection, the insides of types, or memory by C, or have itself called after it has "
    "returned (by functions that profile calls, signals, page faults, threads). What else a "
    "call leaves behind (a setting or seed, a change of an array that is not contiguous or of "
    "an earlier result) is looked for in that process only, by functions of before, too: one "
    "that is written to hide it can, by all of these and by what those functions call or read. "
    "Memory that it frees is overwritten, but for what NumPy keeps of less than 1 KiB: there an "
    "answer that it has computed and freed may be found again. New memory of PyTorch's tensors "
    "holds NaN, others' 1e306 or -0.1. And one that looks at its "
    "process, or counts its calls, may see that it is verified, and be wrong elsewhere; second "
    "derivatives, autocast, calls from other threads and those after one that raises are not "
    "tested. --time does not "
    "see threads that a call starts, nor that it moves to other cores; it is of the papers' layers "
    "and losses, which it names for other operators, and refuses a time below half of that of the "
    "roofline of our cheapest form's operations: other forms may need fewer.",
    "Processes started by a candidate end with it; a candidate that kills its parent ends itself; "
    "a call must not return in a process that it forked, too. "
    "From Linux 6.12 (Landlock) it cannot signal other processes or access their memory, not even "
    "as root. On older systems, or in a container without Landlock, it can: killing this command "
    "gives no verdict, and writing to its memory could fake a pass. Files, including the kit's, "
    "stay accessible.",
    "Results are arrays, numbers, or lists, tuples and dicts (ordered or with defaults, too) of "
    "them, of up to 4,194,304 items, 16 within each other: no dict where an array is asked for, "
    "and named tuples by their items. What is neither is converted by DLPack or __array__, "
    "or both, as soon as the call returns, which may compute, or differ from what it gives "
    "otherwise; subclasses of arrays, tensors and NumPy's numbers are refused. Results and "
    "arguments are compared then: what a thread writes to them later is not seen. A file may "
    "have 1 GiB; of what is printed the end is shown.",
    "A function with an argument named lengths gets a padded batch: the sequences with a batch "
    "axis in front, and by that name the number of valid rows of each sequence; of two arguments "
    "that are sequences, those of the second. Named mask it "
    "gets booleans (B, L), True for valid rows, which may then stand anywhere. What it gives for "
    "padded rows does not matter; padding may hold NaN and Inf. Of an empty sequence it must give "
    "finite numbers, and finite derivatives.",
    "A rounding of an output is a unit of its largest entry, plus its largest change when every "
    f"input and every operation's result changes by a unit: {FLOAT64:g} in float64, one in the "
    f"last place in lower precision ({', '.join(LOWER)}). The literal form's are its most over "
    "many cases. Values count, not dtypes: outputs in float64 for arguments in float32 are right. "
    "A tanh changes by a unit of 1, a small sigmoid by half of that; in float32 a sum of n > 12 "
    "terms by sqrt(n / 12) units, one of n > 3 equal terms, which are all rounded the same way, by "
    "n / sqrt(12). The sums are those of the formulas: one over two axes at once, as einsum takes "
    "of three arrays, has the terms "
    "of both, and in float32 it may be refused. In 16 bits sums are held in float32, as matrix "
    "products and PyTorch's reductions hold theirs: one that is rounded to 16 bits after each "
    "term, or leaves float16's range on the way, may be refused. Gradients and extreme inputs "
    "are of float64 and float32, never of 16 bits.",
)
TOLERANCES = (
    ("quantity", "dtype", "tolerance", "relative to"),
    ("output", "float64", "1", f"a rounding of {FLOAT64:g}"),
    (
        *("output", "lower precision", f"{LITERAL_FACTOR:g} x literal form's + {ULPS:g}"),
        "a rounding of the last place",
    ),
    ("gated, huge inputs", "float64", f"{FLOAT64:g}", "the largest input"),
    ("earlier outputs, scores", "float64", f"{FLOAT64:g}", "the largest of them"),
    ("BLEU, Self-BLEU", "float64", f"{SMOOTHED:g}", "absolute"),
    ("directional derivative", "float64", f"{DIFFERENCES:g}", "itself"),
    ("the same, in a regime", "float64", f"{DIFFERENCES:g}", "itself, the largest output or 1"),
    ("directional derivative", "float32", f"{FLOAT32_GRADIENT:g}", "itself or the largest output"),
    ("gradient", "float32", f"{FLOAT32_GRADIENT:g}", "its largest entry in float64"),
)


def _print_operators(operators: Sequence[Operator], as_json: bool) -> None:
    if as_json:
        print(json.dumps([_described(operator) for operator in operators], indent=2))
        return
    from benchmarks.cli.terminal import grid

    for operator in operators:
        print(operator.signature)
        print(textwrap.fill(operator.about, 96, initial_indent="    ", subsequent_indent="    "))
        for line in operator.conventions:
            print(textwrap.fill(line, 96, initial_indent="    - ", subsequent_indent="      "))
        names = ", ".join(prop.name for prop in operator.properties)
        names += f"; gradients by {' and '.join(operator.by)}" if operator.by else ""
        print(textwrap.fill(names, 96, initial_indent="    tested: ", subsequent_indent=" " * 12))
    print()
    for line in CALLED:
        print(textwrap.fill(line, 96))
    print("", *grid(TOLERANCES, left=4), sep="\n")


def _described(operator: Operator) -> dict[str, object]:
    return {
        "name": operator.name,
        "signature": operator.signature,
        "about": operator.about,
        "conventions": operator.conventions,
        "equations": operator.equations,
        "properties": {prop.name: prop.description for prop in operator.properties},
    }
