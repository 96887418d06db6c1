"""Detects clock jumps by comparing the monotonic clock with the wall clock."""

from __future__ import annotations

from time import perf_counter
from time import time as wall_clock

from benchmarks.errors import InputError

SLACK, DRIFT = 0.05, 0.01
"""Tolerated difference of the clocks: seconds, plus a fraction of the elapsed time."""
TRIES = 10
"""Attempts to read both clocks without an interruption in between."""
MOST_JUMPS = 5
"""Rounds of one measurement that may be discarded because a clock jumped."""


def clocks() -> tuple[float, float]:
    """The monotonic and the wall clock at one moment, read again if interrupted."""
    for _ in range(TRIES):
        monotonic, wall = perf_counter(), wall_clock()
        if perf_counter() - monotonic < SLACK / 10:
            break
    return monotonic, wall


def agree(monotonic: float, wall: float) -> bool:
    """Whether both clocks measured the same seconds: neither jumped, the machine never slept."""
    return monotonic > 0 and abs(wall - monotonic) <= SLACK + DRIFT * monotonic


class Clock:
    """Detects the rounds in which a clock jumped.

    When a machine is suspended, migrated or has its time set, the two clocks advance by different
    amounts; one clock alone cannot tell.
    """

    def __init__(self) -> None:
        self.jumps = 0
        self.start()

    def start(self) -> None:
        """Begin a round."""
        self._began = clocks()

    def trusted(self) -> bool:
        """Whether both clocks agree on the time since `start`; otherwise the jump is counted.

        Raises:
            InputError: they disagreed more than `MOST_JUMPS` times.
        """
        monotonic, wall = (now - began for now, began in zip(clocks(), self._began, strict=True))
        if agree(monotonic, wall):
            return True
        self.jumps += 1
        if self.jumps > MOST_JUMPS:
            raise InputError(
                f"the clock jumped in {self.jumps} rounds (last: {wall:.3g} s by the wall clock, "
                f"{monotonic:.3g} s by the monotonic one), expected one that runs steadily"
            )
        return False
