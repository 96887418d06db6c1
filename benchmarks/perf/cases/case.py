"""A case: what is timed, at which sizes, in which precision, by which implementations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks import kinds
from torch_impl.layers.transformer import Mixer

Function = Callable[..., Any]

COMPILED = "+compile"
"""Behind an implementation's name: the same through ``torch.compile``."""
GRAPHED = "+graphs"
"""Likewise, as CUDA graphs."""
UNAVAILABLE = (ValueError, ImportError)
"""What an implementation raises that is unavailable."""
V2 = "static:32,64,128,256,512"
HALVES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
FULL_PRECISIONS = ("float32", "tf32")
PRECISIONS = (*FULL_PRECISIONS, *HALVES)


@dataclass(frozen=True)
class Sizes:
    """All numbers of a case; a subject says which of them matter to it. The defaults are v2's."""

    batch: int = 48  # images
    length: int = 144  # features of an image, L
    tokens: int = 20  # of a caption, start and end included, T
    d_model: int = 512  # d
    d_ff: int = 2048  # width of the feed-forward layers
    heads: int = 8  # of attention
    layers: int = 3  # of each half of a model
    vocabulary: int = 10_000  # words
    d_feature: int = 1536  # width of an image feature
    beam: int = 5  # hypotheses of an image
    candidates: int = 240  # captions to reward
    references: int = 5  # of each of them
    dropout: float = 0.0  # probability
    encoder: str = V2  # the encoder's mixer
    decoder: str = "dynamic:16"  # the decoder's mixer
    copied: int = 2**26  # bytes, to measure the bandwidth with
    product: int = 1024  # rows and columns of the matrices, to measure products with

    def tiny(self) -> Sizes:
        """The same shrunk as far as it goes, to try the machinery out; its times mean nothing."""

        def fewer(text: str) -> str:
            mixer = Mixer.parse(text)
            return str(replace(mixer, coefficients=tuple(-(-n // 64) for n in mixer.coefficients)))

        return replace(
            self,
            batch=min(self.batch, 2),
            length=min(self.length, 5),
            tokens=min(self.tokens, 4),
            d_model=8,
            d_ff=8,
            heads=2,
            layers=1,
            vocabulary=12,
            d_feature=6,
            beam=min(self.beam, 2),
            candidates=min(self.candidates, 6),
            references=min(self.references, 2),
            encoder=fewer(self.encoder),
            decoder=fewer(self.decoder),
            copied=2**10,
            product=8,
        )


SHORT = {
    "batch": "B",
    "length": "L",
    "tokens": "T",
    "d_model": "d",
    "d_ff": "ff",
    "beam": "beam",
    "dropout": "dropout",
    "candidates": "candidates",
    "references": "references",
    "copied": "bytes",
    "product": "n",
}
"""What a row's name calls a size; mixers stand for themselves, other sizes only where not v2's."""


@dataclass(frozen=True)
class Work:
    """What one implementation does in a call."""

    call: Callable[[], Any]  # the whole work, anew each time
    # parameters and inputs: tensors that are there whether it is called or not
    given: Sequence[Tensor] = ()
    trains: bool = False  # whether autograd records the call


@dataclass(frozen=True)
class Subject:
    """Something that can be timed, in several implementations."""

    name: str  # as on the command line and in records
    about: str  # one line
    sizes: tuple[str, ...]  # the fields of `Sizes` that matter to it
    # those it has; the first is what the others are compared with by default
    implementations: tuple[str, ...]
    # case, implementation, device -> the work to time; raises one of `UNAVAILABLE` where it
    # is unavailable
    make: Callable[[Case, str, torch.device], Work] | None = None
    # in place of ``make`` where nothing is timed: the numbers themselves
    count: Callable[[Case, str, torch.device], dict[str, float]] | None = None
    # what any implementation must read and write, in closed form
    least_bytes: Callable[[Case], int] | None = None
    precisions: tuple[str, ...] = PRECISIONS  # those that make a difference to it

    @property
    def code(self) -> list[Callable[..., Any]]:
        """The functions that its numbers come from."""
        return [code for code in (self.make, self.count, self.least_bytes) if code is not None]

    def sizes_of(self, sizes: Sizes) -> dict[str, Any]:
        """Of all sizes those that matter."""
        return {name: getattr(sizes, name) for name in self.sizes}


def both_passes(
    name: str,
    about: str,
    sizes: Sequence[str],
    implementations: Sequence[str],
    make: Callable[..., Work],
    *,
    drops: bool = True,
    least_bytes: Callable[..., int] | None = None,
    precisions: tuple[str, ...] = PRECISIONS,
) -> list[Subject]:
    """Two subjects: the forward pass alone, as at inference, and both passes of a training.

    ``make`` and ``least_bytes`` are told ``backward``; in training dropout matters where it
    ``drops``.
    """
    return [
        Subject(
            f"{name} {passes}",
            f"{about}, {'both passes' if backward else 'inference'}",
            (*sizes, "dropout") if backward and drops else tuple(sizes),
            tuple(implementations),
            make=partial(make, backward=backward),
            least_bytes=least_bytes and partial(least_bytes, backward=backward),
            precisions=precisions,
        )
        for passes, backward in (("forward", False), ("forward+backward", True))
    ]


@dataclass(frozen=True)
class Case:
    """Implementations of one thing that are timed against each other, the first the baseline."""

    subject: Subject
    implementations: tuple[str, ...]
    sizes: Sizes = field(default_factory=Sizes)
    precision: str = "float32"

    @property
    def row(self) -> str:
        """Its name in records and tables: equal for equal work, whatever the implementations."""
        return ", ".join([self.subject.name, *self._words(), self.precision])

    def _words(self) -> Iterator[str]:
        usual = Sizes()
        for name in self.subject.sizes:
            value = getattr(self.sizes, name)
            if name in ("encoder", "decoder"):
                yield value
            elif name in SHORT and (name != "dropout" or value):
                yield f"{SHORT[name]}={value}"
            elif value != getattr(usual, name):
                yield f"{name}={value}"

    def work(self, implementation: str, device: torch.device) -> Work:
        """What an implementation does; raises one of `UNAVAILABLE` where it is unavailable."""
        if self.subject.make is None:
            raise ValueError("nothing is timed")
        return self.subject.make(self, implementation, device)

    def recorded(self) -> kinds.Case:
        """All that its numbers depend on."""
        return kinds.Case(
            subject=self.subject.name,
            implementations=list(self.implementations),
            sizes=self.subject.sizes_of(self.sizes),
            precision=self.precision,
        )


@contextmanager
def settings(precision: str, threads: int) -> Iterator[None]:
    """Within, PyTorch computes with ``threads`` and, for "tf32", in TensorFloat-32.

    That is float32 whose matrix products may round their inputs to 10 bits; "float32" is float32
    throughout. A half precision is `prepared`'s affair.
    """
    before = torch.get_num_threads(), torch.get_float32_matmul_precision()
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        torch.set_float32_matmul_precision(before[1])


def eager(implementation: str) -> str:
    """The implementation that another is compiled or captured of; itself, if it is neither."""
    return implementation.removesuffix(COMPILED).removesuffix(GRAPHED)


def prepared(function: Function, case: Case, implementation: str, device: torch.device) -> Function:
    """The forward pass as the case has it: compiled by the implementation's name, and autocast.

    A half precision is autocast over float32 parameters, as models are trained; what a caller then
    does backward is outside of it.
    """
    if implementation.endswith(COMPILED):
        function = torch.compile(function, dynamic=False)
    if case.precision in HALVES:
        function = torch.autocast(device.type, HALVES[case.precision])(function)
    return function
