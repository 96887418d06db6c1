"""Time functions against each other: alternated, synchronised, with a noise floor.

All are called in one process, in a new random order each round, so that other load affects all of
them alike. One of them is timed twice in every round: the difference of the two is noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import torch

from benchmarks import collector
from benchmarks.perf.clock import Clock
from benchmarks.statistics import Estimate, median, paired_ratio, verdict

Function = Callable[[], Any]


@dataclass(frozen=True)
class Budget:
    """How long one measurement may take.

    Raises:
        ValueError: a number below 1, seconds not positive, ``most`` below ``least``.
    """

    seconds: float = 5.0  # no round starts after this time, once ``least`` rounds are done
    least: int = 5  # rounds; below 5 the interval of a median says little
    most: int = 100  # rounds
    warm_up: int = 2  # calls of each function before the rounds; only one if they are long

    def __post_init__(self) -> None:
        if not 0 < self.seconds < math.inf:
            raise ValueError(f"seconds is {self.seconds}, expected a finite number above 0")
        if not 1 <= self.least <= self.most or self.warm_up < 1:
            raise ValueError(
                f"least, most, warm_up are {self.least}, {self.most}, {self.warm_up}, expected "
                "1 <= least <= most and 1 <= warm_up"
            )


@dataclass(frozen=True)
class Measurement:
    """The seconds of every call, by function and round."""

    # seconds of each function in each round; the first is the baseline
    samples: Mapping[str, Sequence[float]]
    twin: str  # the function that was timed twice
    again: Sequence[float]  # seconds of its second call in each round
    # seconds of each function's first call, compilation included
    first_calls: Mapping[str, float]
    jumps: int = 0  # rounds discarded because a clock jumped

    @property
    def baseline(self) -> str:
        """The function that all others are compared with."""
        return next(iter(self.samples))

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        return len(self.again)

    def seconds(self, name: str) -> Estimate:
        """The median time of a call."""
        return median(self.samples[name])

    def ratio(self, name: str) -> Estimate:
        """Speed relative to the baseline: above 1 is faster."""
        return paired_ratio(self.samples[self.baseline], self.samples[name])

    @property
    def floor(self) -> float:
        """The A/A floor, at least 1: a ratio no further from 1 than this is noise."""
        same = paired_ratio(self.samples[self.twin], self.again)
        return max(same.high, 1 / same.low, 1.0)

    def verdict(self, name: str) -> str:
        """ "baseline", or whether it is "faster" or "slower" than that, or "not settled"."""
        if name == self.baseline:
            return "baseline"
        return verdict(self.ratio(name), self.floor, widen=True)


def measure(
    functions: Mapping[str, Function],
    device: torch.device | str,
    budget: Budget,
    refused: dict[str, Exception] | None = None,
    *,
    flush: bool = True,
    stopwatch: Callable[[Function], float] | None = None,
) -> Measurement:
    """Time the functions against the first of them.

    Args:
        functions: what to call, by name; each call does all of the work.
        device: where they compute, to synchronise with.
        refused: collects the errors of first calls, except the baseline's; those functions are not
            timed. Without it, the errors are raised.
        flush: empty a CUDA device's cache before each call. A CPU's is left as it is: the call
            before was another function's, so it is as warm for all alike.
        stopwatch: calls a function and returns its seconds, in place of the usual one.

    Raises:
        ValueError: there are no functions.
        InputError: the clock jumps again and again.
    """
    if not functions:
        raise ValueError("no functions, expected at least one to time")
    seconds_of = stopwatch or _stopwatch(torch.device(device), flush)
    first_calls, usual = {}, {}
    for name, function in functions.items():
        try:
            first_calls[name] = usual[name] = seconds_of(function)
        except Exception as error:
            if refused is None or not usual:
                raise
            refused[name] = error
            continue
        calls = 1
        while calls < budget.warm_up and usual[name] * len(functions) < budget.seconds:
            usual[name] = seconds_of(function)
            calls += 1
    # the fastest: cheap to time again, and most affected by noise
    twin = min(usual, key=lambda name: usual[name])
    called = {name: functions[name] for name in usual}
    calls_of_a_round = [*called.items(), (None, functions[twin])]
    samples: dict[str | None, list[float]] = {name: [] for name, _ in calls_of_a_round}
    order = np.random.default_rng(0)
    clock, done = Clock(), 0
    with collector.paused():
        began = perf_counter()
        while done < budget.least or (
            done < budget.most and perf_counter() - began < budget.seconds
        ):
            clock.start()
            turn = {
                name: seconds_of(function)
                for name, function in (
                    calls_of_a_round[i] for i in order.permutation(len(calls_of_a_round))
                )
            }
            if not clock.trusted():
                continue
            for name, taken in turn.items():
                samples[name].append(taken)
            done += 1
    again = samples.pop(None)
    named = {name: values for name, values in samples.items() if name is not None}
    return Measurement(named, twin, again, first_calls, clock.jumps)


def _stopwatch(device: torch.device, flush: bool) -> Callable[[Function], float]:
    """A function that calls its argument and returns the seconds, synchronised."""
    if device.type == "cuda":
        return _cuda_stopwatch(device, flush)

    def seconds(function: Function) -> float:
        began = perf_counter()
        function()
        return perf_counter() - began

    return seconds


def _cuda_stopwatch(device: torch.device, flush: bool) -> Callable[[Function], float]:
    """Times by CUDA events from an idle device, its cache empty if ``flush``; launches included."""
    cache = torch.cuda.get_device_properties(device).L2_cache_size
    filler = torch.empty(2 * cache, dtype=torch.int8, device=device)

    def seconds(function: Function) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        if flush:
            filler.zero_()
        torch.cuda.synchronize(device)
        start.record()
        function()
        end.record()
        torch.cuda.synchronize(device)
        return start.elapsed_time(end) / 1000

    return seconds
