"""Beam search on a GPU as CUDA graphs: no step waits for the CPU to launch its kernels.

Shapes grow by one token a step and are otherwise those of the first batch, so each step is a graph
of its own, captured once and replayed for every batch. The graphs share one memory pool, which is
safe as they are replayed in the order of capture.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from torch_impl.common.padding import padding_mask
from torch_impl.common.protocols import IncrementalModel
from torch_impl.decoding.beams import Beams, Hypothesis, should_check_end
from torch_impl.decoding.search import NextToken, beam_search, next_token_fn

T = TypeVar("T")


class Graph(Protocol):
    """A captured computation."""

    def replay(self) -> None:
        """Run it again, from and into the same memory."""


class Capture(Protocol):
    """Captures computations in the order of their replay."""

    def __call__(self, compute: Callable[[], T]) -> tuple[Graph, T]:
        """The graph of ``compute``, and its outputs, which a replay overwrites."""


def cuda_capture() -> Capture:
    """A `Capture` into CUDA graphs that share one memory pool."""
    pool = torch.cuda.graph_pool_handle()

    def capture(compute: Callable[[], T]) -> tuple[Graph, T]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            outputs = compute()
        return graph, outputs

    return capture


class _Captured(NamedTuple):
    """The graphs of all steps, and the buffers that they read."""

    features: Tensor
    valid: Tensor | None
    steps: list[tuple[Graph, Beams, Tensor]]


class GraphedBeamSearch:
    """``decoding.beam_search`` for batches of one shape, with equal results.

    The first call runs ``beam_search`` itself, as warm-up, and then captures the steps, under the
    autocast of that call; a failed capture leaves nothing behind. The model's weights may change in
    place afterwards; it must stay on its device, in evaluation mode.

    Args:
        model: has a cache; in evaluation mode, on a GPU.
        beam_size: hypotheses kept for each image; 1 is greedy search.
        max_length: in tokens, start and end included.
        num_return: hypotheses returned for each image, best first.
        capture: makes the graphs; `cuda_capture` if None.

    Raises:
        ValueError: the model has dropout in its current mode, or no cache.
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
        if not isinstance(model, IncrementalModel) or model.is_stochastic:
            raise ValueError("graphs need a model that reads a token at a time, in model.eval()")
        self.model, self.beam_size, self.max_length = model, beam_size, max_length
        self.num_return = num_return
        self._capture = capture
        self._captured: _Captured | None = None

    @torch.no_grad()
    def __call__(self, features: Tensor, lengths: Tensor | None = None) -> list[list[Hypothesis]]:
        """As ``beam_search``.

        Args:
            features: (B, L, d_feature), of the first call's shape.
            lengths: (B,) valid feature rows, or (B, L) True where valid; all if None, in every call
                or in none.

        Raises:
            ValueError: another shape, dtype or device than the first, or lengths where there were
                none; as ``beam_search``.
        """
        valid = padding_mask(lengths, features)
        if self._captured is None:
            hypotheses = beam_search(
                self.model,
                features,
                valid,
                beam_size=self.beam_size,
                max_length=self.max_length,
                num_return=self.num_return,
            )
            self._captured = self._capture_steps(features, valid)
            return hypotheses
        captured = self._captured
        _check(features, valid, captured)
        captured.features.copy_(features)
        if captured.valid is not None and valid is not None:
            captured.valid.copy_(valid)
        for step, (graph, beams, is_done) in enumerate(captured.steps, start=1):
            graph.replay()
            found = beams
            if should_check_end(step, len(captured.steps), features.device) and bool(is_done):
                break
        return found.best(self.num_return)

    def _capture_steps(self, features: Tensor, valid: Tensor | None) -> _Captured:
        """Capture every step, on new buffers."""
        capture = self._capture or cuda_capture()
        model, num_return, max_length = self.model, self.num_return, self.max_length
        features, valid = features.clone(), None if valid is None else valid.clone()
        next_token: NextToken

        def first() -> tuple[Beams, Tensor]:
            nonlocal next_token
            next_token = next_token_fn(model, features, valid, self.beam_size, max_length)
            return step(Beams.initial(model, features, self.beam_size))

        def step(beams: Beams) -> tuple[Beams, Tensor]:
            beams = beams.advance(next_token(beams.tokens, beams.order), model)
            return beams, beams.is_done(num_return, max_length)

        # autocast frees its casts of the weights with its context, but a graph reads them later
        device = features.device.type
        enabled, dtype = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
        steps: list[tuple[Graph, Beams, Tensor]] = []
        with torch.autocast(device, dtype, enabled=enabled, cache_enabled=False):
            compute: Callable[[], tuple[Beams, Tensor]] = first
            for _ in range(max_length - 1):
                graph, (beams, is_done) = capture(compute)
                steps.append((graph, beams, is_done))
                compute = partial(step, beams)
        return _Captured(features, valid, steps)


def _check(features: Tensor, valid: Tensor | None, captured: _Captured) -> None:
    for name in ("shape", "dtype", "device"):
        found, expected = getattr(features, name), getattr(captured.features, name)
        if found != expected:
            raise ValueError(f"features: {name} {found}, the graphs are of {expected}")
    if (valid is None) != (captured.valid is None):
        raise ValueError("lengths are given in every call or in none: the graphs are of the first")
