"""``captionbench record``: measure everything of a device, and pack it into one file to send."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import torch
from tqdm import tqdm

from benchmarks import records
from benchmarks.cli import time as timing
from benchmarks.cli.options import add_json
from benchmarks.devices import check_device
from benchmarks.errors import InputError
from benchmarks.files import locked
from benchmarks.perf import case_records, device_record, threads

DEVICES = {"cpu": "cpu", "gpu": "cuda"}
"""Of each suite."""
THREADS = {"cpu": [1, threads.usable()], "gpu": [1]}
RECORDS = "records.jsonl"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("--suite", choices=DEVICES, required=True, help="of what kind of device")
    parser.add_argument("--device", help="which one (default: cpu, or cuda for --suite gpu)")
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="DIR",
        help="folder of the records and of the file to send; run again to go on there",
    )
    parser.add_argument("--tiny", action="store_true", help="smallest sizes, to try the command")
    timing.configure_measuring(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Verify, measure what has no record yet, pack; 1 if an implementation is not right."""
    kind = DEVICES[arguments.suite]
    asked = None if arguments.device else f"--suite {arguments.suite}"
    device = torch.device(check_device(arguments.device or kind, asked))
    if device.type != kind:
        raise InputError(f"--device {device}: expected one of kind {kind} for this suite (--suite)")
    if arguments.out.exists() and not arguments.out.is_dir():
        raise InputError(f"--out {arguments.out}: is a file, expected a folder")
    path = arguments.out / RECORDS
    session = timing.session(arguments, device, path, usual_threads=THREADS[arguments.suite])
    records.check_writable(path)
    with locked(path, wait=False):
        if not timing.print_verification(session.verify(), quiet=arguments.json):
            print("not every implementation is right here: nothing is timed", file=sys.stderr)
            return 1
        done = {}
        for stage in device_record.stages(arguments.suite):
            if not (session.time_is_up or arguments.json):
                print(f"\n{stage.name}: {stage.about}")
            before = session.left
            for found in stage.run(session, arguments.tiny):
                if found and stage.name != "scaling" and not arguments.json:
                    tqdm.write("\n".join(timing.lines(found, session.made)), file=sys.stdout)
            done[stage.name] = session.left == before
        described = case_records.describe(device, session.threads[-1])
        packed = arguments.out / device_record.name(described)
        data = device_record.pack(
            session.made,
            suite=arguments.suite,
            device=described,
            stages=done,
            failed=session.failed,
            tiny=arguments.tiny,
        )
        device_record.write(data, packed)
    if arguments.json:
        made = {"file": str(packed), "records": len(session.made), "left": session.left}
        print(json.dumps({**made, "stages": done, "failed": session.failed}))
        return 0
    print(f"\n{packed}: {len(session.made)} records, {len(data) / 1e6:.2g} MB", end=", ")
    if session.left:
        left = ", ".join(name for name, whole in done.items() if not whole)
        print(f"what there is so far: {session.left} cases are left ({left}), run again")
    else:
        print("the file to send")
    return 0
