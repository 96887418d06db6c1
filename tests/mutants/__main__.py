"""Every mutant must be caught by the property named for it; 1 if one is not."""

from __future__ import annotations

import argparse
import signal
from functools import partial
from pathlib import Path

from benchmarks import workers
from benchmarks.cli.options import at_least
from benchmarks.perf import threads
from benchmarks.verify.conformance import FAILED
from tests.mutants import right
from tests.mutants.cheats import CHEATS
from tests.mutants.gradient_slips import GRADIENTS
from tests.mutants.mutant import EXAMPLES, caught
from tests.mutants.slips import SLIPS

CASES = 100
"""Of a run of ours, in each dtype."""


def main() -> int:
    """Print a line for each mutant."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="operators, or words of a slip (default: all)")
    count = at_least(1)
    parser.add_argument("--every", type=count, default=1, metavar="N", help="every Nth of them")
    parser.add_argument("--seed", type=at_least(0), default=0, help="of the cases (default: 0)")
    parser.add_argument("--list", action="store_true", help="print them and run none")
    parser.add_argument("--table", metavar="FILE", help="write what caught each as Markdown")
    parser.add_argument("--right", type=count, metavar="N", help="instead: right ones, by N seeds")
    parser.add_argument("--own", type=count, metavar="N", help="instead: our forms, on N cases")
    parser.add_argument(
        "--examples", type=count, default=right.EXAMPLES, metavar="N", help=OF_RIGHT
    )
    parser.add_argument("--out", metavar="FILE", help="of these two: their runs, which resume")
    arguments = parser.parse_args()
    if arguments.right or arguments.own:
        return _right(arguments, parser)
    chosen = [*SLIPS, *CHEATS, *GRADIENTS][:: arguments.every]
    if arguments.names:
        chosen = [m for m in chosen if any(name in m.name for name in arguments.names)]
    if not chosen:
        parser.error(f"no mutant's name has {' or '.join(arguments.names)} in it: see --list")
    if arguments.list:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` may end it
        for mutant in chosen:
            print(f"{mutant.caught_by:<20} {mutant.name}")
        return 0
    missed, lines = [], []
    calls = [partial(caught, mutant, seed=arguments.seed) for mutant in chosen]
    with workers.submitted(calls, threads.usable()) as verdicts:
        for mutant, verdict_to_be in zip(chosen, verdicts, strict=True):
            found = verdict_to_be.result()
            verdict = mutant.caught_by if found.status == FAILED else "MISSED"
            took = f"{found.seconds:5.1f}"
            lines.append(f"| {mutant.operator} | {mutant.slip} | {verdict} | {took.strip()} |")
            print(f"{verdict:<20} {took} s  {mutant.name}: {found.message[:110]}", flush=True)
            if found.status != FAILED:
                missed.append(mutant.name)
    said = f"{len(chosen) - len(missed)} of {len(chosen)} mutants caught"
    print(said)
    if arguments.table:
        _write(arguments.table, MUTANTS.format(said=said), lines)
    return int(bool(missed))


OF_RIGHT = f"small cases for each property of a right one (default: {right.EXAMPLES})"

MUTANTS = """# Wrong candidates

{said}, each by the property named for it: `python -m tests.mutants --table FILE`.
Seconds are of the property alone: {examples} cases, and the search for the smallest that fails.

| operator | slip | caught by | s |
|---|---|---|---|""".replace("{examples}", str(EXAMPLES))

COLUMNS = """
| operator | function | framework | {dtypes} | runs | refusals | CPU s |
|---|---|---|---|---|---|---|---|---|---|""".replace("{dtypes}", " | ".join(right.DTYPES))

RIGHT = f"""# Right candidates

{{said}}: `python -m tests.mutants --right N --out FILE --table FILE`.

A run is every property of the operator that the candidate's framework has, on {{of}}
small cases each (half as many where a check repeats calls) and large ones, all of them beside 25
or more, by another seed.
Every operator has one in NumPy, and in PyTorch if it takes arrays: learning rates, searches and
metrics take numbers, words and functions. Columns of dtypes are numbers of cases.
{COLUMNS}"""

OWN = f"""# Our own forms

{{said}}: `python -m tests.mutants --own N --out FILE --table FILE`.

A run is outputs on {CASES} random small cases in float64, and in float32 where the operator has it;
every tenth has large cases in float32 too. Of printed_beam_search there is no form of ours.
{COLUMNS}"""


def _right(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    own = arguments.own
    chosen = right.ours() if own else list(right.candidates())
    if arguments.names:
        chosen = [one for one in chosen if any(name in one.operator for name in arguments.names)]
    if not chosen:
        parser.error(f"no operator's name has {' or '.join(arguments.names)} in it")
    seeds = -(-own // CASES) if own else arguments.right
    options = (CASES, ("equals_oracle", "float32"), 10) if own else (arguments.examples,)
    found = []
    for run in right.runs(chosen, seeds, arguments.out, *options):
        found.append(run)
        if run["failed"]:
            print(run["of"], f"seed {run['seed']}", *run["failed"], sep="\n", flush=True)
    said = right.said(found)
    print(said)
    if arguments.table:
        head = OWN if own else RIGHT
        _write(arguments.table, head.format(said=said, of=arguments.examples), right.table(found))
    return int(any(run["failed"] for run in found))


def _write(path: str, head: str, lines: list[str]) -> None:
    Path(path).write_text("\n".join([head, *lines]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
