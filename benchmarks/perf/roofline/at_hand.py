"""The device at hand, described by what it was measured to do at best."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import torch

from benchmarks.perf import run as running
from benchmarks.perf.cases import suites
from benchmarks.perf.roofline.descriptions import CPU, Device, measured
from benchmarks.perf.timing import Budget
from benchmarks.records import Record


def at_hand(device: torch.device, threads: int, known: Sequence[Record]) -> Device:
    """By the newest ceilings among the records or, where there are none, measured now.

    Args:
        device: where PyTorch computes.
        threads: of the CPU.
        known: records.
    """
    name = running.describe(device, threads)["name"]
    used = threads if device.type == CPU else 0
    found = measured(known, name, used)
    if found is None:
        print("measuring what this device can do at best ...", file=sys.stderr)
        case = suites.case("ceilings", ("device",))
        made = running.time_case(case, device, threads, Budget(), strict=True)
        found = measured(made, name, used)
    assert found is not None
    return found
