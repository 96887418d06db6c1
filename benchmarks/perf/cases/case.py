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
"""Suffix of an implementation's name: run through ``torch.compile``."""
GRAPHED = "+graphs"
"""Suffix of an implementation's name: run as CUDA graphs."""
UNAVAILABLE = (ValueError, ImportError)
"""What an unavailable implementation raises."""
V2 = "static:32,64,128,256,512"
HALVES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
FULL_PRECISIONS = ("float32", "tf32")
PRECISIONS = (*FULL_PRECISIONS, *HALVES)


@dataclass(frozen=True)
class Sizes:
    """All sizes of a case; a subject lists those that it uses. The defaults are v2's."""

    batch: int = 48  # images
    length: int = 144  # L, features of an image
    tokens: int = 20  # T, tokens of a caption, start and end included
    d_model: int = 512  # d
    d_ff: int = 2048  # width of the feed-forward layers
    heads: int = 8  # attention heads
    layers: int = 3  # of the encoder and of the decoder, each
    vocabulary: int = 10_000  # words
    d_feature: int = 1536  # width of an image feature
    beam: int = 5  # hypotheses per image
    candidates: int = 240  # captions to score
    references: int = 5  # of each candidate
    dropout: float = 0.0  # probability
    encoder: str = V2  # the encoder's mixer
    decoder: str = "dynamic:16"  # the decoder's mixer
    copied: int = 2**26  # bytes of a copy, for the bandwidth
    product: int = 1024  # side of square matrices, for the peak FLOP/s

    def tiny(self) -> Sizes:
        """The smallest sizes, to try the code; times at them mean nothing."""

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
"""Names of sizes in a row; mixers have none, and other sizes appear only if not v2's."""


@dataclass(frozen=True)
class Work:
    """A call to measure."""

    call: Callable[[], Any]  # does all of the work in each call
    # parameters and inputs, which exist before the call
    given: Sequence[Tensor] = ()
    trains: bool = False  # whether autograd records the call


@dataclass(frozen=True)
class Subject:
    """Something that can be timed, in several implementations."""

    name: str  # as on the command line and in records
    about: str  # one line
    sizes: tuple[str, ...]  # the fields of `Sizes` that it uses
    # the first is the default baseline
    implementations: tuple[str, ...]
    # case, implementation, device -> the call to time; raises one of `UNAVAILABLE`
    make: Callable[[Case, str, torch.device], Work] | None = None
    # in place of ``make``, the numbers of what is not timed
    count: Callable[[Case, str, torch.device], dict[str, float]] | None = None
    # that any implementation must read and write, in closed form
    least_bytes: Callable[[Case], int] | None = None
    precisions: tuple[str, ...] = PRECISIONS  # that make a difference

    @property
    def code(self) -> list[Callable[..., Any]]:
        """The functions that its numbers come from."""
        return [code for code in (self.make, self.count, self.least_bytes) if code is not None]

    def sizes_of(self, sizes: Sizes) -> dict[str, Any]:
        """The sizes that it uses."""
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
    """Two subjects: the forward pass alone, as at inference, and both passes, as in training.

    ``make`` and ``least_bytes`` are called with ``backward``; training uses dropout if ``drops``.
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
    """Implementations of one subject that are timed against each other, the baseline first."""

    subject: Subject
    implementations: tuple[str, ...]
    sizes: Sizes = field(default_factory=Sizes)
    precision: str = "float32"

    @property
    def row(self) -> str:
        """Its name in records and tables, whatever the implementations."""
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
        """The call of an implementation; raises one of `UNAVAILABLE` if it is unavailable."""
        if self.subject.make is None:
            raise ValueError("nothing is timed")
        return self.subject.make(self, implementation, device)

    def recorded(self) -> kinds.Case:
        """The case as a record has it."""
        return kinds.Case(
            subject=self.subject.name,
            implementations=list(self.implementations),
            sizes=self.subject.sizes_of(self.sizes),
            precision=self.precision,
        )


@contextmanager
def settings(precision: str, threads: int) -> Iterator[None]:
    """Set PyTorch's threads and its float32 matmul precision within the block.

    "tf32" lets float32 matrix products and cuDNN round their inputs to 10 bits. `prepared` handles
    the half precisions.
    """
    before = torch.get_num_threads(), torch.get_float32_matmul_precision()
    in_cudnn = torch.backends.cudnn.allow_tf32
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        torch.set_float32_matmul_precision(before[1])
        torch.backends.cudnn.allow_tf32 = in_cudnn


def eager(implementation: str) -> str:
    """The implementation's name without `COMPILED` or `GRAPHED`."""
    return implementation.removesuffix(COMPILED).removesuffix(GRAPHED)


def prepared(function: Function, case: Case, implementation: str, device: torch.device) -> Function:
    """The forward pass, compiled if the name ends with `COMPILED`, autocast in half precision.

    Parameters stay float32, as in training; the backward pass is outside of autocast.
    """
    if implementation.endswith(COMPILED):
        function = torch.compile(function, dynamic=False)
    if case.precision in HALVES:
        function = torch.autocast(device.type, HALVES[case.precision])(function)
    return function
