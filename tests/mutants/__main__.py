"""Every mutant must be caught by the property named for it; 1 if one is not."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tests.mutants import right
from tests.mutants.cheats import CHEATS
from tests.mutants.mutant import EXAMPLES, caught
from tests.mutants.slips import SLIPS


def main() -> int:
    """Print a line for each mutant."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="operators, or words of a slip (default: all)")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every Nth of them alone")
    parser.add_argument("--seed", type=int, default=0, help="of the cases (default: 0)")
    parser.add_argument("--list", action="store_true", help="print them and run none")
    parser.add_argument("--table", metavar="FILE", help="write what caught each as Markdown")
    parser.add_argument(
        "--right", type=int, metavar="N", help="instead: right candidates by N seeds, none refused"
    )
    arguments = parser.parse_args()
    if arguments.right:
        return _right(arguments)
    chosen = [*SLIPS, *CHEATS][:: arguments.every]
    if arguments.names:
        chosen = [m for m in chosen if any(name in m.name for name in arguments.names)]
    missed, lines = [], []
    for mutant in chosen:
        if arguments.list:
            print(f"{mutant.caught_by:<20} {mutant.name}")
            continue
        with tempfile.TemporaryDirectory() as folder:
            found = caught(mutant, Path(folder), arguments.seed)
        verdict = mutant.caught_by if found.message else "MISSED"
        took = f"{found.seconds:5.1f}"
        lines.append(f"| {mutant.operator} | {mutant.slip} | {verdict} | {took.strip()} |")
        print(f"{verdict:<20} {took} s  {mutant.name}: {found.message[:110]}", flush=True)
        if not found.message:
            missed.append(mutant.name)
    if not arguments.list:
        said = f"{len(chosen) - len(missed)} of {len(chosen)} mutants caught"
        print(said)
        if arguments.table:
            _write(arguments.table, MUTANTS.format(said=said), lines)
    return int(bool(missed))


MUTANTS = """# Wrong candidates

{said}, each by the property named for it: `python -m tests.mutants --table FILE`.
Seconds are of a process that imports, tests {examples} cases of the property and looks for the
smallest failing one, on a shared CPU.

| operator | slip | caught by | s |
|---|---|---|---|""".replace("{examples}", str(EXAMPLES))

RIGHT = """# Right candidates

{said}: `python -m tests.mutants --right {seeds} --table FILE`. A run is every property of the
operator that the candidate's framework has, on {examples} cases each, by another seed.

| operator | candidate | framework | tested in | runs | refusals | CPU s |
|---|---|---|---|---|---|---|"""


def _right(arguments: argparse.Namespace) -> int:
    lines, failed = [], []
    for line, refusals in right.table(arguments.right, arguments.names):
        print("\n".join([line, *refusals]), flush=True)
        lines.append(line)
        failed += refusals
    said = f"{len(failed)} refusals in {len(lines) * arguments.right} runs of right candidates"
    print(said)
    if arguments.table:
        head = RIGHT.format(said=said, seeds=arguments.right, examples=right.EXAMPLES)
        _write(arguments.table, head, lines)
    return int(bool(failed))


def _write(path: str, head: str, lines: list[str]) -> None:
    Path(path).write_text("\n".join([head, *lines]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
