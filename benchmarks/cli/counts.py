"""``captionbench counts``: resource counts compared with a committed baseline."""

from __future__ import annotations

import argparse
import json

from benchmarks.cli.options import add_json
from benchmarks.files import read_json, write_atomically
from benchmarks.perf.counts import BASELINE, compared, counted, differences


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--renew", action="store_true", help="write the baseline anew, to be committed"
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Count, and compare with the baseline or write it; 1 if a compared count differs.

    Raises:
        InputError: without ``--renew``, the baseline is missing or not JSON.
    """
    rows = counted()
    if arguments.renew:
        with write_atomically(BASELINE) as file:
            file.write(json.dumps(compared(rows), indent=1, sort_keys=True) + "\n")
    if arguments.json:
        print(json.dumps(rows, indent=1, sort_keys=True))
    else:
        for row, counts in rows.items():
            print(f"{row}\n    " + ", ".join(f"{name} {value}" for name, value in counts.items()))
    changed = differences(rows, read_json(BASELINE, "counts (captionbench counts --renew)"))
    if not arguments.json:
        print("\n".join(changed) or f"all {len(rows)} as in {BASELINE.name}")
        if changed:
            print("if intended: captionbench counts --renew, and say why in the commit")
    return int(bool(changed))
