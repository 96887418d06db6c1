"""``captionbench scale``: exponents of time and memory, against the closed form."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import torch
from tqdm import tqdm

from benchmarks import records
from benchmarks.cli.options import (
    above_0,
    add_records,
    check_device,
    own_records,
    starting_with,
    thread_count,
)
from benchmarks.files import write_atomically
from benchmarks.perf.scaling import curves
from benchmarks.perf.scaling.ladders import LADDERS
from benchmarks.perf.session import Session
from benchmarks.perf.timing import Budget
from benchmarks.records import Record

SECONDS = 5.0


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="NAME",
        help=f"ladders whose names begin so: {', '.join(LADDERS)}",
    )
    parser.add_argument("--device", default="cpu", help="where PyTorch computes (default: cpu)")
    parser.add_argument(
        "--threads", type=thread_count, default=1, help="CPU threads: a number or all (default: 1)"
    )
    parser.add_argument(
        "--seconds",
        type=above_0,
        default=SECONDS,
        help=f"for an implementation's rounds over all sizes (default: {SECONDS:g})",
    )
    parser.add_argument("--tiny", action="store_true", help="smallest widths, to try the command")
    add_records(parser)
    parser.add_argument(
        "--plot", type=Path, metavar="FILE.svg", help="draw time over size, a panel a ladder"
    )
    parser.add_argument("--json", action="store_true", help="print the records, not a table")


def run(arguments: argparse.Namespace) -> int:
    """Measure the ladders that have no record yet, and print all of them."""
    ladders = [LADDERS[name] for name in starting_with(LADDERS, arguments.only, "ladder")]
    device = torch.device(check_device(arguments.device))
    with own_records(arguments, "scaling.jsonl") as path:
        session = Session(device, path, [arguments.threads], Budget(seconds=arguments.seconds))
        known = records.load(records.PUBLISHED, records.LOCAL)
        for new in session.scale(ladders, tiny=arguments.tiny, known=known):
            if not arguments.json:
                tqdm.write("\n".join(line for record in new for line in _lines(record)))
                sys.stdout.flush()
    if arguments.plot:
        with write_atomically(arguments.plot) as file:
            file.write(curves.draw(session.records))
    if arguments.json:
        print(json.dumps(records.to_json(session.records), indent=2, sort_keys=True))
        return int(bool(session.failed))
    print(f"{path}: the records" if path else "no records kept of tiny sizes (--out keeps them)")
    if arguments.plot:
        print(f"{arguments.plot}: time over size")
    return int(bool(session.failed))


def _lines(record: Record) -> list[str]:
    values, details = record.values, record.details
    sizes = ", ".join(map(str, details.sizes))
    memory = ", ".join(
        f"{name} ^{values[name]:.2f}" for name in ("saved bytes", "peak bytes") if name in values
    )
    form = details.saved_form
    closed = f"; saved bytes are {form}" if form else ""
    return [
        f"{record.what.row} over {details.symbol} = {sizes}",
        f"  time ^{values['exponent']:.2f} [{values['exponent low']:.2f}, "
        f"{values['exponent high']:.2f}], expected ^{values['expected']:.2f}, roofline "
        f"^{values['roofline']:.2f}; between the last two ^{values['last']:.2f}, expected "
        f"^{values['expected last']:.2f}",
        f"  counted: {memory}{closed}",
        f"  {details.why}",
    ]
