"""Which equation of which paper stands where: the inventory of the five papers and its registry.

A function of the oracle says ``@equation("expansionnet_v2", 4)``; one function may carry several.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

Function = TypeVar("Function", bound=Callable[..., object])
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

_ORACLES: dict[tuple[str, Number], list[str]] = {}


def equation(paper: str, number: Number) -> Callable[[Function], Function]:
    """Register the decorated function as the oracle of ``paper``'s equation ``number``.

    Raises:
        ValueError: the paper is not one of ``PAPERS`` or has no such equation.
    """
    if paper not in PAPERS:
        raise ValueError(f"unknown paper {paper!r}, expected one of {', '.join(PAPERS)}")
    if number not in PAPERS[paper].numbers:
        raise ValueError(f"{paper} has no equation {number!r}")

    def register(function: Function) -> Function:
        name = f"{function.__module__}.{function.__qualname__}"
        names = _ORACLES.setdefault((paper, number), [])
        if name not in names:
            names.append(name)
        return function

    return register


def oracles() -> dict[tuple[str, Number], tuple[str, ...]]:
    """Every registered (paper, number) with the dotted names of its oracle functions."""
    package = importlib.import_module("reference")
    for module in pkgutil.iter_modules(package.__path__, "reference."):
        importlib.import_module(module.name)
    return {key: tuple(names) for key, names in _ORACLES.items()}


@dataclass(frozen=True)
class Erratum:
    """A place where print and sense differ: what is printed, what is taken, and why."""

    paper: str
    where: str
    printed: str
    taken: str
    why: str
