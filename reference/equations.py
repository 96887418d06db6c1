"""The registry of the papers' numbered equations: formula, oracle, errata, decisions.

``@equation("expansionnet_v2", 4, r"\\Psi ...")`` registers a function as the oracle of an equation,
with its LaTeX as printed, one raw string a line. A function may have several. An ``Erratum``
corrects the print; a ``Decision`` settles what the print leaves open.
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
    """What is printed, what the oracle takes, why; ``about`` names a part of the equation."""

    printed: str
    taken: str
    why: str
    about: str = ""

    @property
    def kind(self) -> str:
        """``erratum`` or ``decision``."""
        return type(self).__name__.lower()


class Erratum(Note):
    """An error in print: a misprint, or a contradiction within the paper or with what was run."""


class Decision(Note):
    """No error in print: something is left open, or taken as printed."""


@dataclass(frozen=True)
class Equation:
    """A printed equation or listing and its oracle function."""

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
    """Register the decorated function as the oracle of ``paper``'s equation ``number``.

    Raises:
        ValueError: an unknown paper or equation, or one that has another oracle already.
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
    """Attach notes to a passage or table without an equation number; usable as a decorator."""
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
    """Every note as (paper, place, note), place ``(3), (6), masking`` say; passages come last."""
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
