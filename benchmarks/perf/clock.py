"""Whether the time that went by can be trusted: the monotonic clock beside the wall clock."""

from __future__ import annotations

from time import perf_counter
from time import time as wall_clock

from benchmarks.errors import InputError

SLACK, DRIFT = 0.05, 0.01
"""Seconds, and a part of the elapsed time, that the two clocks of a machine may differ by."""
TRIES = 10
"""Of reading both of them with nothing between."""
MOST_JUMPS = 5
"""Rounds of one measurement that may be lost to a clock that jumps."""


def clocks() -> tuple[float, float]:
    """The monotonic and the wall clock at one moment: again, if something came between."""
    for _ in range(TRIES):
        monotonic, wall = perf_counter(), wall_clock()
        if perf_counter() - monotonic < SLACK / 10:
            break
    return monotonic, wall


def agree(monotonic: float, wall: float) -> bool:
    """Whether two clocks agree on the seconds elapsed: neither jumped, the machine never slept."""
    return monotonic > 0 and abs(wall - monotonic) <= SLACK + DRIFT * monotonic


class Clock:
    """Tells rounds apart in which time can be trusted from those in which a clock jumped.

    A machine that is suspended, moved or set right has a monotonic clock and a wall clock that go
    on by different amounts; no clock alone can tell.
    """

    def __init__(self) -> None:
        self.jumps = 0
        self.start()

    def start(self) -> None:
        """Begin a round."""
        self._began = clocks()

    def trusted(self) -> bool:
        """Whether both clocks agree on the time since `start`; if not, that is counted.

        Raises:
            InputError: they have disagreed more than `MOST_JUMPS` times.
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
