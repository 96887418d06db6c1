"""One test of a property on a case, and how it failed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from benchmarks.errors import InputError
from benchmarks.verify import gradients, properties
from benchmarks.verify.candidate import BaseCandidate, CandidateError
from benchmarks.verify.cases import Case, dtype_of, reversed_arrays, size
from benchmarks.verify.chance import seed_of, seeded, set_seed
from benchmarks.verify.derivatives import differences, directions
from benchmarks.verify.draw import Draw
from benchmarks.verify.operators.operator import Operator, Property
from benchmarks.verify.oracle import Oracle, OracleError, in_dtype, in_float64
from benchmarks.verify.properties import SMALL, Function
from benchmarks.verify.tolerances import OutOfToleranceError

DIFFERENTIATED = (gradients.gradient, gradients.gradient_in_regime, gradients.finite_in_float32)
"""Checks that compare with central differences of cases of every size."""

OF_ANOTHER = (
    gradients.gradient_after_other,
    gradients.inference_state,
    properties.precision_state,
)
"""Checks that draw another case, by their argument ``another``."""

RANDOM = (
    properties.no_state,
    properties.same_objects,
    properties.same_lists,
    properties.inference,
    properties.every_layout,
    properties.low_batch,
    properties.same_array,
)
"""Checks, besides those of gradients, that choose by ``chance``."""

SAID = 2000
"""Maximum length of a failure's message, in characters."""

FAR = 100.0
"""An error this many times its tolerance is no rounding error, and is not shrunk to one."""


class Tested(NamedTuple):
    """A property that was tested, and the draw of its case."""

    prop: Property
    draw: Draw


@dataclass(frozen=True)
class Failure:
    """A failing case.

    Attributes:
        kind: identifies the kind of failure, which shrinking keeps.
        draw: the choices of the case; None if its numbers were simplified.
        calls: the number of runs of the check in a fresh process until it fails; 0 if not
            deterministic.
        times: if not, how often it failed again in further runs of its check on its case.
        after_other: whether each run follows a call with other numbers of the same shapes.
        earlier: earlier tests, which each run follows.
        by_hashes: whether it depends on the hashes of strings, by which sets are ordered.
    """

    case: Case
    kind: str
    message: str
    draw: Draw | None = None
    calls: int = 1
    times: int = 0
    after_other: bool = False
    earlier: tuple[Tested, ...] = ()
    by_hashes: bool = False

    @property
    def conclusive(self) -> bool:
        """Whether it cannot be a rounding error, and is deterministic."""
        return self.kind != "rounding" and self.calls > 0

    @property
    def size(self) -> int:
        """The number of entries in the case's arrays."""
        return size(self.case)


@dataclass(frozen=True)
class Attempt:
    """A test of a property of an operator on a candidate.

    Attributes:
        worker: the candidate in its worker process, which ``candidate`` may adapt.
        failed: number of the candidate's properties that have failed before.
        secret: of what is chosen by chance; the candidate must not know it.
        after_other: whether to call it with other numbers of the same shapes before each run.
        earlier: tests that come before each run.
        watched: the case whose ``outcomes`` are kept: whether each of its runs failed.
    """

    prop: Property
    operator: Operator
    candidate: BaseCandidate
    worker: BaseCandidate = field(default_factory=BaseCandidate)
    failed: int = 0
    secret: bytes = b""
    after_other: bool = False
    earlier: tuple[Tested, ...] = ()
    watched: Case | None = None
    outcomes: list[bool] = field(default_factory=list)

    def settings(self, prop: Property) -> Mapping[str, Any]:
        """The further arguments of a property's check."""
        of = {"another": self.operator.sample_case}
        return {**prop.settings, **(of if prop.check in OF_ANOTHER else {})}

    def oracle(self) -> Function:
        """The operator's oracle, with a cache."""
        return Oracle(self.operator.name, self.operator.oracle)

    def trial(self, draw: Draw) -> Trial:
        """The test of a draw's case."""
        return Trial(self, draw)

    def sample(self, tested: Tested) -> Case:
        """The case of a test."""
        return self.operator.sample_case(tested.draw.again())

    def replay(self, tested: Tested, case: Case, oracle: Function) -> None:
        """Repeat a test, for what its calls leave behind."""
        with suppress(Exception):
            tested.prop.check(self.candidate, oracle, case, **self.settings(tested.prop))

    def run(
        self, case: Case, draw: Draw | None = None, oracle: Function | None = None
    ) -> Failure | None:
        """Test the property on ``case``; returns the failure, or None.

        Raises:
            UndecidedError: the property is not defined on this case.
            OracleError: the oracle raised.
            InputError: the candidate cannot be loaded again.
        """
        failure = self._tested(case, draw, oracle or self.oracle())
        if case is self.watched:
            self.outcomes.append(failure is not None)
        return failure

    def _tested(self, case: Case, draw: Draw | None, oracle: Function) -> Failure | None:
        if is_random(self.prop, self.earlier):
            set_seed(seed_of(case, self.secret))
        try:
            with np.errstate(all="ignore"):
                if self.after_other:
                    self.candidate(*reversed_arrays(case))
                for one in self.earlier:
                    self.replay(one, self.sample(one), oracle)
                self.prop.check(self.candidate, oracle, case, **self.settings(self.prop))
        except (properties.UndecidedError, OracleError, InputError):
            raise
        except CandidateError as error:
            return Failure(case, error.kind, str(error), draw)
        except OutOfToleranceError as error:
            finite = "far off" if error.excess > FAR else "rounding"
            kind = finite if np.isfinite(error.excess) else "broken"
            return Failure(case, kind, str(error), draw)
        except AssertionError as error:
            message = str(error) or "another result than the oracle's"
            return Failure(case, "wrong", _beginning(message), draw)
        except Exception as error:
            what = "returned a result that cannot be compared with the oracle's"
            message = f"{what}: {type(error).__name__}: {error}"
            return Failure(case, type(error).__name__, _beginning(message), draw)
        return None


class Trial:
    """A test of a draw's case, which can be prepared while the worker process works on another.

    Attributes:
        oracle: with what has been computed of the case.
    """

    def __init__(self, attempt: Attempt, draw: Draw) -> None:
        self.attempt, self.draw, self.oracle = attempt, draw, attempt.oracle()

    @cached_property
    def case(self) -> Case:
        """The case."""
        return self.attempt.operator.sample_case(self.draw)

    def run(self) -> Failure | None:
        """``Attempt.run`` on the case."""
        return self.attempt.run(self.case, self.draw, self.oracle)

    def ahead(self) -> Iterator[None]:
        """Compute, step by step, what the test needs of the case and its oracle.

        What raises does so again in the test.
        """
        prop = self.attempt.prop
        with suppress(Exception):
            low = in_dtype(self.oracle, self.case, prop.settings.get("dtype", dtype_of(self.case)))
            of = in_float64(self.oracle, low)
            yield
            self.oracle(*of)
            yield
            if prop.check in DIFFERENTIATED or ("by" in prop.settings and size(of) < SMALL):
                with seeded(seed_of(self.case, self.attempt.secret)):
                    along = directions(self.oracle, of, prop.settings["by"])
                    differences(self.oracle, of, along)


def _beginning(message: str) -> str:
    """As much of a message, which may hold a whole result, as a reader wants."""
    return message if len(message) <= SAID else f"{message[:SAID]}..."


def is_random(prop: Property, earlier: Sequence[Tested]) -> bool:
    """Whether a test, or an earlier one, chooses by ``chance``."""
    checks = [prop.check, *(one.prop.check for one in earlier)]
    return any(one in RANDOM or one.__module__ == gradients.__name__ for one in checks)
