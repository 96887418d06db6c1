"""Resource counts of a call, compared exactly: an increase is a regression."""

from __future__ import annotations

import contextlib
import io
import logging
from collections import Counter
from collections.abc import Mapping, Sequence

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from benchmarks.perf import resources
from benchmarks.perf.cases.case import Work

LAUNCHES, BREAKS = "kernel launches", "graph breaks"
CALLS = 4
"""Most calls that are counted: an optimiser's first steps may differ from all others."""
Counts = dict[str, int | None]
"""None where the calls of one process disagree."""


def count(work: Work, device: torch.device) -> Counts:
    """FLOPs, saved activations, peak bytes, operators and graph breaks of a call.

    On CUDA kernel launches too. A count is what two of up to `CALLS` calls agree on. Graph breaks
    are left out if the compiler fails.
    """
    taken = [_once(work, device) for _ in range(2)]
    agreeing = agreed(taken)
    while None in agreeing.values() and len(taken) < CALLS:
        taken.append(_once(work, device))
        agreeing = agreed(taken)
    if (breaks := graph_breaks(work)) is not None:
        agreeing[BREAKS] = breaks
    return agreeing


def agreed(taken: Sequence[Mapping[str, int]]) -> Counts:
    """By name the most common value, if at least two calls have it; the earlier one of a tie."""
    counts: Counts = {}
    for name in taken[0]:
        ((value, times),) = Counter(one[name] for one in taken).most_common(1)
        counts[name] = value if times > 1 else None
    return counts


def _once(work: Work, device: torch.device) -> dict[str, int]:
    taken = resources.count(work, device)
    if device.type == "cuda":
        taken[LAUNCHES] = _launches(work, device)
    return taken


def _launches(work: Work, device: torch.device) -> int:
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        work.call()
        torch.cuda.synchronize(device)
    return sum(event.device_type == DeviceType.CUDA for event in profiled.events() or [])


def graph_breaks(work: Work) -> int | None:
    """Number of graph breaks under `torch.compile`; None if it fails."""
    logger = logging.getLogger("torch")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            explained = torch._dynamo.explain(work.call)()
        return int(explained.graph_break_count)
    except Exception:  # it raises many kinds of exceptions, none of them about the counts
        return None
    finally:
        logger.setLevel(level)
        torch._dynamo.reset()
