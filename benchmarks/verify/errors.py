"""How a candidate fails."""

from __future__ import annotations

from benchmarks.verify.originals import own_builtins

own_builtins(globals())


class CandidateError(Exception):
    """A failure of the candidate: it raised, returned no array, or had a side effect."""

    def __init__(self, message: str, kind: str = "candidate") -> None:
        """``kind`` distinguishes failures."""
        super().__init__(message)
        self.kind = kind


class BackwardError(Exception):
    """A backward pass raised the exception that is the cause of this one."""
