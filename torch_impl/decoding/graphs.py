"""Beam search on a GPU as CUDA graphs: no step waits for the CPU to launch its kernels.

Shapes grow by a token a step and are otherwise those of the first batch, so each step is a graph of
its own, captured once and replayed for every batch. They share one pool of memory, which is safe as
they are replayed in the order in which they were captured.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from torch_impl.common.padding import padding_mask
from torch_impl.decoding.beams import Beams
from torch_impl.decoding.protocols import IncrementalModel
from torch_impl.decoding.search import (
    Hypothesis,
    beam_search,
    best,
    next_log_probs_of,
)

Made = TypeVar("Made")


class Graph(Protocol):
    """Work that was captured."""

    def replay(self) -> None:
        """Do it again, on and into the same memory."""


class Capture(Protocol):
    """Captures work, in the order in which it will be replayed."""

    def __call__(self, work: Callable[[], Made]) -> tuple[Graph, Made]:
        """The graph of ``work``, and what it made, which a replay fills."""


def cuda_capture() -> Capture:
    """Captures into CUDA graphs of one pool."""
    pool = torch.cuda.graph_pool_handle()

    def capture(work: Callable[[], Made]) -> tuple[Graph, Made]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            made = work()
        return graph, made

    return capture


class GraphedBeamSearch:
    """``decoding.beam_search`` for batches of one shape, equal to it.

    The first batch is searched by ``beam_search`` itself, as warm-up, and then captured, under the
    autocast of that call. The model's weights may change in place afterwards; it must stay where it
    is, in evaluation mode.

    Args:
        model: reads a token at a time; in evaluation mode, on a GPU.
        beam_size: hypotheses kept for each image; 1 is greedy search.
        max_length: the longest caption in tokens, start and end included.
        num_return: hypotheses returned for each image, best first.
        capture: makes the graphs; `cuda_capture` if None.

    Raises:
        ValueError: the model has dropout now or cannot read a token at a time; sizes as
            ``beam_search`` has it.
    """

    def __init__(
        self,
        model: IncrementalModel,
        *,
        beam_size: int,
        max_length: int,
        num_return: int = 1,
        capture: Capture | None = None,
    ) -> None:
        """Capture nothing before the first batch."""
        if not isinstance(model, IncrementalModel) or model.draws:
            raise ValueError("graphs are of a model that reads a token at a time, in model.eval()")
        self.model, self.beam_size, self.max_length = model, beam_size, max_length
        self.num_return = num_return
        self._capture = capture
        self._features: Tensor | None = None
        self._valid: Tensor | None = None
        self._steps: list[tuple[Graph, Beams, Tensor]] = []

    @torch.no_grad()
    def __call__(self, features: Tensor, lengths: Tensor | None = None) -> list[list[Hypothesis]]:
        """As ``beam_search``.

        Args:
            features: (B, L, d_feature), of the first call's shape.
            lengths: (B,) valid feature rows, or (B, L) True where valid; all if None, then and now.

        Raises:
            ValueError: another shape, dtype or device than the first, or lengths where there were
                none; as ``beam_search``.
        """
        valid = padding_mask(lengths, features)
        if self._features is None:
            searched = beam_search(
                self.model,
                features,
                valid,
                beam_size=self.beam_size,
                max_length=self.max_length,
                num_return=self.num_return,
            )
            self._begin(features, valid)
            return searched
        self._check(features, valid)
        self._features.copy_(features)
        if self._valid is not None and valid is not None:
            self._valid.copy_(valid)
        for graph, beams, settled in self._steps:
            graph.replay()
            found = beams
            if bool(settled):
                break
        return best(found, self.num_return)

    def _begin(self, features: Tensor, valid: Tensor | None) -> None:
        """Capture every step on memory of its own."""
        capture = self._capture or cuda_capture()
        model, K, T = self.model, self.beam_size, self.max_length
        held = self._features = features.clone()
        valid = self._valid = None if valid is None else valid.clone()
        reader: Callable[[Tensor, Tensor | None], Tensor]

        def first() -> tuple[Beams, Tensor]:
            nonlocal reader
            reader = next_log_probs_of(model, held, valid, K, T)
            return step(Beams.begin(model, held, K))

        def step(beams: Beams) -> tuple[Beams, Tensor]:
            beams = beams.advance(reader(beams.tokens, beams.order), model)
            return beams, beams.settled(self.num_return, T)

        # a weight that autocast keeps in another dtype is gone after its context, a graph is not
        kind = features.device.type
        half, dtype = torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)
        with torch.autocast(kind, dtype, enabled=half, cache_enabled=False):
            work: Callable[[], tuple[Beams, Tensor]] = first
            for _ in range(T - 1):
                graph, (beams, settled) = capture(work)
                self._steps.append((graph, beams, settled))
                work = partial(step, beams)

    def _check(self, features: Tensor, valid: Tensor | None) -> None:
        first = self._features
        assert first is not None
        for name in ("shape", "dtype", "device"):
            found, expected = getattr(features, name), getattr(first, name)
            if found != expected:
                raise ValueError(f"features: {name} {found}, the graphs are of {expected}")
        if (valid is None) != (self._valid is None):
            raise ValueError(
                "lengths are given in every call or in none: the graphs are of the first"
            )
