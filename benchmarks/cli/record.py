"""``captionbench record``: measure everything of a device, and pack it into one file to send."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from tqdm import tqdm

from benchmarks import records
from benchmarks.cli import time as timing
from benchmarks.cli.options import add_data, add_json, check_device
from benchmarks.errors import InputError
from benchmarks.files import check_writable, locked
from benchmarks.kinds import Measured
from benchmarks.papers import queue
from benchmarks.papers.experiment import Place
from benchmarks.perf import case_records, device_record, threads
from benchmarks.perf.device_record import RecordStage
from benchmarks.perf.session import Session
from benchmarks.records import Record

DEVICES = {"cpu": "cpu", "gpu": "cuda"}
"""PyTorch's device type of each suite."""
THREADS = {"cpu": [1, threads.usable()], "gpu": [1]}
RECORDS = "records.jsonl"
FORM = "flickr8k"
"""The form in which rows are trained: the papers' sizes."""
OPT_IN = "fused"
"""The implementation that is left out where it is wrong: "auto" never chooses it."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--suite", choices=DEVICES, required=True, help="kind of device")
    parser.add_argument("--device", help="which one (default: cpu, or cuda for --suite gpu)")
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="DIR",
        help="folder of the records and of the file to send; run again to resume",
    )
    add_data(parser, "the folder of real data, for --features")
    parser.add_argument(
        "--features",
        type=Path,
        metavar="DIR",
        help="train rows of the papers' tables too, on these features of Flickr8k's photographs",
    )
    parser.add_argument("--tiny", action="store_true", help="smallest sizes, to try the command")
    timing.configure_measuring(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Verify, measure and train what has no record yet, and pack it; 1 if a verification fails."""
    kind = DEVICES[arguments.suite]
    asked = None if arguments.device else f"--suite {arguments.suite}"
    device = torch.device(check_device(arguments.device or kind, asked))
    if device.type != kind:
        raise InputError(f"--device {device}: expected one of kind {kind} for this suite (--suite)")
    path = arguments.out / RECORDS
    session = timing.session(arguments, device, path, usual_threads=THREADS[arguments.suite])
    check_writable(path)
    training = _training(arguments, device) if arguments.features else []
    with locked(path, wait=False):
        verified = session.verify()
        right = timing.print_verification(verified, quiet=arguments.json)
        rows = [row for record in verified for row in record.details.rows]
        wrong = {row.implementation for row in rows if not row.passed}
        if wrong - {OPT_IN}:
            print("not every implementation is right here: nothing is timed", file=sys.stderr)
            return 1
        targets, *rest = device_record.stages(
            arguments.suite, device, tiny=arguments.tiny, wrong=wrong
        )
        described = case_records.describe(device, session.threads[-1])
        packed, done = arguments.out / device_record.name(described), dict[str, bool]()
        for stage in [targets, *training, *rest]:
            if not (session.time_is_up or arguments.json):
                print(f"\n{stage.name}: {stage.about}")
            before = session.left
            for new in stage.run(session):
                if records.of_kind(new, Measured) and not arguments.json:
                    tqdm.write("\n".join(timing.lines(new, session.records)), file=sys.stdout)
            done[stage.name] = session.left == before
            data = device_record.pack(  # after each stage: an interruption loses one at most
                session.records,
                suite=arguments.suite,
                device=described,
                stages=done,
                failed=session.failed,
                tiny=arguments.tiny,
            )
            device_record.write(data, packed)
    if arguments.json:
        about = {"file": str(packed), "records": len(session.records), "left": session.left}
        print(json.dumps({**about, "stages": done, "failed": session.failed}))
        return int(not right)
    print(f"\n{packed}: {len(session.records)} records, {len(data) / 1e6:.2g} MB", end=", ")
    if session.left:
        left = ", ".join(name for name, whole in done.items() if not whole)
        print(f"incomplete: {session.left} cases not done ({left}); run the same command to resume")
    else:
        print("the file to send")
    return int(not right)


def _training(arguments: argparse.Namespace, device: torch.device) -> list[RecordStage]:
    """The stage that trains rows of the papers' tables, those that settle most first."""
    folder = arguments.out / "runs"
    place = Place(arguments.data, folder, str(device), True, arguments.features)
    runs = queue.plan(queue.with_form(FORM), FORM, place, by_row=True)

    def train(session: Session) -> Iterator[list[Record]]:
        for run in runs:
            yield session.load_or_measure(run.title, run.key, run.make)

    return [RecordStage("training", "rows of the papers' tables, in their sizes", train)]
