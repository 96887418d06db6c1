"""Every mutant must be caught by the property named for it; 1 if one is not."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tests.mutants.cheats import CHEATS
from tests.mutants.mutant import caught
from tests.mutants.slips import SLIPS


def main() -> int:
    """Print a line for each mutant."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="operators, or words of a slip (default: all)")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every Nth of them alone")
    parser.add_argument("--seed", type=int, default=0, help="of the cases (default: 0)")
    parser.add_argument("--list", action="store_true", help="print them and run none")
    arguments = parser.parse_args()
    chosen = [*SLIPS, *CHEATS][:: arguments.every]
    if arguments.names:
        chosen = [m for m in chosen if any(name in m.name for name in arguments.names)]
    missed = []
    for mutant in chosen:
        if arguments.list:
            print(f"{mutant.caught_by:<20} {mutant.name}")
            continue
        with tempfile.TemporaryDirectory() as folder:
            found = caught(mutant, Path(folder), arguments.seed)
        verdict = mutant.caught_by if found.message else "MISSED"
        print(
            f"{verdict:<20} {found.seconds:5.1f} s  {mutant.name}: {found.message[:110]}",
            flush=True,
        )
        if not found.message:
            missed.append(mutant.name)
    if not arguments.list:
        print(f"{len(chosen) - len(missed)} of {len(chosen)} mutants caught")
    return int(bool(missed))


if __name__ == "__main__":
    raise SystemExit(main())
