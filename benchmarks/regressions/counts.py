"""What a call takes that needs no clock: counted, compared exactly, an increase is a regression."""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Mapping

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from benchmarks.speed import resources
from benchmarks.speed.case import Work

LAUNCHES, BREAKS = "kernel launches", "graph breaks"
Counts = dict[str, int]


def count(work: Work, device: torch.device) -> Counts:
    """FLOPs, bytes kept for the backward pass, peak bytes, operators and graph breaks of a call.

    On CUDA the kernels that were launched too. What a second call counts otherwise is no count, and
    is left out; so are graph breaks of what the compiler gives up on.
    """
    first, second = (_once(work, device) for _ in range(2))
    found = {name: value for name, value in first.items() if second[name] == value}
    if (breaks := graph_breaks(work)) is not None:
        found[BREAKS] = breaks
    return found


def _once(work: Work, device: torch.device) -> Counts:
    taken = resources.count(work.call, work.given, device)
    found = {name: int(value) for name, value in taken.items()}
    if not work.trains:
        del found["saved bytes"]
    if device.type == "cuda":
        found[LAUNCHES] = _launches(work, device)
    return found


def _launches(work: Work, device: torch.device) -> int:
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        work.call()
        torch.cuda.synchronize(device)
    return sum(event.device_type == DeviceType.CUDA for event in profiled.events() or [])


def graph_breaks(work: Work) -> int | None:
    """Where `torch.compile` would leave what it compiles; None if it cannot say."""
    logger = logging.getLogger("torch")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            explained = torch._dynamo.explain(work.call)()
        return int(explained.graph_break_count)
    except Exception:  # it fails by many exceptions, none of which is about what is counted
        return None
    finally:
        logger.setLevel(level)
        torch._dynamo.reset()


def differences(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """What was counted of both and is not equal, by how much it grew."""
    return {
        name: after[name] - before[name]
        for name in before
        if name in after and after[name] != before[name]
    }
