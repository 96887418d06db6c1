"""Everything that can be timed, by name."""

from __future__ import annotations

from benchmarks.errors import InputError
from benchmarks.perf.cases import (
    ceilings,
    decoding,
    expansions,
    memory,
    models,
    random_shapes,
    recurrent,
    reward,
    self_critical,
)
from benchmarks.perf.cases.case import Subject

SUBJECTS: dict[str, Subject] = {
    subject.name: subject
    for module in (
        *(ceilings, expansions, models, recurrent, decoding, reward, self_critical),
        *(memory, random_shapes),
    )
    for subject in module.SUBJECTS
}


def named(beginning: str) -> list[Subject]:
    """The subjects whose names begin so.

    Raises:
        InputError: there are none.
    """
    found = [subject for name, subject in SUBJECTS.items() if name.startswith(beginning)]
    if not found or not beginning:
        raise InputError(
            f"--only {beginning or '(empty)'}: no such case, expected the beginning of one of "
            f"{', '.join(SUBJECTS)}"
        )
    return found
