"""A mutant: a right candidate with one slip, or a candidate that cheats."""

from __future__ import annotations

import inspect
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

from benchmarks.verify.conformance import Verdict, conformance_test
from benchmarks.verify.detection import resolve
from benchmarks.verify.operators import OPERATORS
from benchmarks.verify.process import Limits
from tests.candidates import (
    decoding,
    middle_out,
    middle_out_torch,
    objectives,
    recurrent,
    recurrent_torch,
    right_torch,
    right_words,
)

NUMPY = (right_words, recurrent, middle_out, objectives, decoding)
TORCH = (right_torch, recurrent_torch, middle_out_torch)

EXAMPLES = 100


@dataclass(frozen=True)
class Mutant:
    """A candidate's text with ``old`` replaced by ``new`` where the operator's function begins.

    Attributes:
        operator: that it claims to be.
        slip: what is wrong, in words.
        caught_by: the property that must catch it.
        old: text of the right candidate; nothing if ``new`` follows the candidate's text.
        new: what stands in its place.
        within: the function whose text it is, if not the operator's.
        is_detected: whether the kit must find its framework.
        is_torch: whether its right candidate is the one in PyTorch, where there are two.
    """

    operator: str
    slip: str
    caught_by: str
    old: str
    new: str
    within: str = ""
    is_detected: bool = False
    is_torch: bool = False

    @property
    def name(self) -> str:
        """Operator and slip."""
        return f"{self.operator}: {self.slip}"

    @property
    def framework(self) -> str | None:
        """The right candidate's; None if the kit must find it."""
        if self.is_detected:
            return None
        return "torch" if self._module() in TORCH else "numpy"

    def text(self) -> str:
        """The candidate's source."""
        right = inspect.getsource(self._module())
        if not self.old:
            return f"{right}\n\n{self.new.replace('FUNCTION', self.operator)}"
        head, function, tail = right.partition(f"\ndef {self.within or self.operator}(")
        assert self.old in tail, f"{self.name}: not in the right candidate: {self.old}"
        return head + function + tail.replace(self.old, self.new, 1)

    def _module(self) -> ModuleType:
        modules = TORCH if self.is_torch else (*NUMPY, *TORCH)
        return next(module for module in modules if self.operator in vars(module))


def caught(mutant: Mutant, folder: Path | None = None, seed: int = 0) -> Verdict:
    """The verdict of the property that must catch a mutant, which is written to a folder."""
    operator, limits = OPERATORS[mutant.operator], Limits(seconds=3.0)
    with ExitStack() as stack:
        path = (folder or Path(stack.enter_context(TemporaryDirectory()))) / "mutant.py"
        path.write_text(mutant.text())
        where = f"{path}:{mutant.operator}"
        candidate = stack.enter_context(resolve(where, operator, mutant.framework, limits=limits))
        (verdict,) = conformance_test(
            operator, candidate, examples=EXAMPLES, seed=seed, only=(mutant.caught_by,)
        )
    return verdict
