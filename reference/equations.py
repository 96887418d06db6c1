"""The inventory of the papers' numbered equations, and what the oracle says of each.

``@equation("expansionnet_v2", 4, r"\\Psi ...")`` on a function makes it the oracle of an equation:
one raw LaTeX string for each line, as printed. A function may carry several. What the print gets
wrong, and what it leaves to us, stands beside it as an ``Erratum`` or a ``Decision``.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from reference.checks import requires

Function = TypeVar("Function", bound=Callable[..., Any])
Number = int | str


@dataclass(frozen=True)
class Paper:
    """A paper's numbered equations and listings."""

    title: str
    authors: str
    year: int
    equations: int
    listings: tuple[str, ...] = ()

    @property
    def numbers(self) -> tuple[Number, ...]:
        """The numbers as printed, then the names of the unnumbered listings."""
        return (*range(1, self.equations + 1), *self.listings)


PAPERS: dict[str, Paper] = {
    "expansionnet_v1": Paper(
        "ExpansionNet: exploring the sequence length bottleneck in the Transformer for Image "
        "Captioning",
        "Hu, Cavicchioli, Capotondi",
        2022,
        equations=15,
    ),
    "expansionnet_v2": Paper(
        "Exploiting Multiple Sequence Lengths in Fast End to End Training for Image Captioning",
        "Hu, Cavicchioli, Capotondi",
        2023,
        equations=14,
    ),
    "arnet": Paper(
        "Regularizing RNNs for Caption Generation by Reconstructing The Past with The Present",
        "Chen, Ma, Jiang, Yao, Liu",
        2018,
        equations=12,
    ),
    "lstm_readonly": Paper(
        "Long Short-Term Memory with Read-only Unit in Neural Image Caption Generator",
        "Poghosyan, Sarukhanyan",
        2017,
        equations=19,
        listings=("gradient clipping", "beam search"),
    ),
    "middle_out": Paper("Middle-Out Decoding", "Mehri, Sigal", 2018, equations=8),
}


@dataclass(frozen=True)
class Note:
    """What is printed, what the oracle takes, why; and which part of the equation it is about."""

    printed: str
    taken: str
    why: str
    about: str = ""

    @property
    def kind(self) -> str:
        """``erratum`` or ``decision``."""
        return type(self).__name__.lower()


class Erratum(Note):
    """The print errs: a misprint, or it contradicts itself or what was run."""


class Decision(Note):
    """The print does not err: it leaves something open, or says what is taken."""


@dataclass(frozen=True)
class Equation:
    """A printed equation or listing and the function of the oracle that stands for it."""

    paper: str
    number: Number
    formula: tuple[str, ...]
    """LaTeX, as printed, line by line."""
    oracle: str
    """The function's dotted name."""
    notes: tuple[Note, ...]
    definition: str | None
    """Why it is a definition, with nothing to compute; None for a computation."""

    @property
    def kind(self) -> str:
        """``computation`` or ``definition``."""
        return "definition" if self.definition else "computation"


_equations: dict[tuple[str, Number], Equation] = {}
_passages: dict[tuple[str, str], tuple[Note, ...]] = {}


known_paper = requires(
    lambda paper: paper in PAPERS, "unknown paper {paper!r}, expected one of " + ", ".join(PAPERS)
)


@known_paper
def equation(
    paper: str,
    number: Number,
    *formula: str,
    notes: Sequence[Note] = (),
    definition: str | None = None,
) -> Callable[[Function], Function]:
    """Make the decorated function the oracle of ``paper``'s equation ``number``.

    Raises:
        ValueError: an unknown equation, or one that another function stands for.
    """
    if number not in PAPERS[paper].numbers:
        raise ValueError(f"{paper} has no equation {number!r}")

    def register(function: Function) -> Function:
        name = f"{function.__module__}.{function.__qualname__}"
        entry = Equation(paper, number, formula, name, tuple(notes), definition)
        if _equations.setdefault((paper, number), entry).oracle != name:
            raise ValueError(f"{paper} {number} is {_equations[paper, number].oracle} already")
        return function

    return register


@known_paper
def passage(paper: str, where: str, *notes: Note) -> Callable[[Function], Function]:
    """Note something about a passage or table without a number, on a function or alone."""
    _passages[paper, where] = notes
    return lambda function: function


def _import_all() -> None:
    package = importlib.import_module("reference")
    for module in pkgutil.iter_modules(package.__path__, "reference."):
        importlib.import_module(module.name)


def equations() -> list[Equation]:
    """Every equation that has an oracle, in the papers' order."""
    _import_all()
    keys = [(paper, number) for paper, about in PAPERS.items() for number in about.numbers]
    return [_equations[key] for key in keys if key in _equations]


def all_notes() -> list[tuple[str, str, Note]]:
    """Every note with its paper and place, ``(5), (7), masking`` say: equations, then passages."""
    numbers: dict[tuple[str, Note], list[Number]] = {}
    for entry in equations():
        for note in entry.notes:
            numbers.setdefault((entry.paper, note), []).append(entry.number)
    found = []
    for (paper, note), of in numbers.items():
        parts = [f"({number})" if isinstance(number, int) else number for number in of]
        found.append((paper, ", ".join([*parts, *filter(None, [note.about])]), note))
    for (paper, where), notes in sorted(_passages.items()):
        found += [(paper, where, note) for note in notes]
    return sorted(found, key=lambda one: list(PAPERS).index(one[0]))
