"""Our decoding as candidates: tables of log-probabilities as captioning models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.scoring.onnx_captioner import Hypothesis as OnnxHypothesis
from benchmarks.scoring.onnx_captioner import OnnxCaptioner
from benchmarks.verify.cases import HalvesLogProbs, NextLogProbs, after
from torch_impl.decoding import search
from torch_impl.decoding.beams import Hypothesis
from torch_impl.decoding.grid_beam import grid_beam_search as search_the_grid
from torch_impl.decoding.middle_out import middle_out_beam_search as search_outwards
from torch_impl.training.scheduled_sampling import sampled_inputs

Found = list[tuple[list[int], float]]


IMAGES = 2
"""Number of images of a search; the case is the last, and the others have other scores."""


def _of_images(table: Any, device: str, images: int) -> Tensor:
    """Tables of log-probabilities, (images, *table.shape): in float32, as models are, if exact."""
    low = table.astype(np.float32)
    table = torch.tensor(low if np.array_equal(low, table) else table, device=device)
    return torch.stack([table.roll(i, -1) for i in range(images)][::-1])


def _also_alone(search: Callable[[int], Found]) -> Found:
    """What a search of a number of images finds for the last, which must be the same for one.

    A search ends when that of every image has: a fault in how it ends may not show beside another.
    """
    alone, beside = (search(images) for images in (1, IMAGES))
    if alone != beside:
        raise ValueError(f"found {alone} of one image, {beside} beside another")
    return beside


def _check_lengths(memory: Tensor, lengths: Tensor | None) -> None:
    """Raise ValueError unless a model receives the lengths of its images, one row each."""
    if lengths is None or len(lengths) != len(memory) or (lengths != 1).any():
        raise ValueError(f"lengths {lengths} of {len(memory)} images of one row each")


class _Table(nn.Module):
    """``NextLogProbs`` as a captioning model; the features of an image are its index, and a row
    of padding.
    """

    def __init__(
        self,
        model: NextLogProbs,
        start: int,
        end: int,
        max_length: int,
        device: str,
        images: int = IMAGES,
    ) -> None:
        super().__init__()
        self.tables = _of_images(model.table, device, images)
        self.start_id, self.end_id, self.pad_id, self.max_length = start, end, start, max_length
        self.images = torch.arange(float(images), device=device)[:, None, None]
        self.images = torch.cat([self.images, self.images + 0.5], 1)
        self.lengths = torch.ones(images, dtype=torch.int64, device=device)

    def encode(self, features: Tensor, lengths: Tensor | None = None) -> Tensor:
        return features

    def decode(
        self, tokens: Tensor, memory: Tensor, memory_lengths: Tensor | None = None
    ) -> Tensor:
        _check_lengths(memory, memory_lengths)
        numbers = torch.stack([*accumulate(tokens.unbind(1), after, initial=0 * tokens[:, 0])], 1)
        steps, image = torch.arange(tokens.shape[1], device=tokens.device), memory[:, 0].long()
        return self.tables[image, steps, numbers[:, 1:] % self.tables.shape[2]]


class _Cached(_Table):
    """The same model, decoding step by step; it is also its own cache."""

    is_stochastic = False

    def init_cache(self, memory: Tensor, lengths: Tensor | None, *_: Any) -> _Cached:
        _check_lengths(memory, lengths)
        self.words, self.numbers = 0, torch.zeros((), dtype=torch.int64)
        return self

    def step(self, tokens: Tensor) -> Tensor:
        self.words, self.numbers = self.words + 1, after(self.numbers, tokens)
        image = torch.arange(len(tokens), device=tokens.device)[:, None]
        return self.tables[image, self.words - 1, self.numbers % self.tables.shape[2]]

    def reorder(self, beams: Tensor) -> None:
        self.numbers = self.numbers.gather(1, beams)


class _Halves:
    """``HalvesLogProbs`` as a middle-out captioner, and its cache."""

    def __init__(
        self, model: HalvesLogProbs, end: int, max_length: int, device: str, images: int
    ) -> None:
        self.tables = _of_images(model.table, device, images)
        # padding is never read
        self.start_id, self.end_id, self.pad_id, self.max_length = end, end, end, max_length
        V = self.tables.shape[-1]
        self.configuration = SimpleNamespace(
            side_order=(0, 1), vocabulary_size=V, pad_id=end, end_id=end
        )

    def encode(self, features: Tensor, lengths: Tensor | None = None) -> Tensor:
        return features

    def init_cache(self, *_: Any) -> _Halves:
        self.turn = 0
        return self

    def step(self, tokens: Tensor, attend_mask: Tensor | None) -> Tensor:
        side = self.turn % 2
        self.turn += 1
        if attend_mask is None:
            self.numbers = after(0, tokens).expand(2, *tokens.shape).clone()
            self.words = torch.zeros_like(tokens)
        else:
            before = self.numbers[1 - side]
            self.numbers[1 - side] = after(before, tokens).where(attend_mask, before)
            self.words = self.words + attend_mask
        number = after(self.numbers[side], self.numbers[1 - side])
        image = torch.arange(len(tokens), device=tokens.device)[:, None]
        return self.tables[image, side, self.words, number % self.tables.shape[-2]]

    def reorder(self, beams: Tensor) -> None:
        self.numbers = self.numbers.gather(2, beams.expand(2, *beams.shape))
        self.words = self.words.gather(1, beams)


def _plain(hypotheses: Sequence[Hypothesis | OnnxHypothesis]) -> Found:
    return [(hypothesis.tokens, hypothesis.score) for hypothesis in hypotheses]


def greedy(model: NextLogProbs, start: int, end: int, max_length: int, *, device: str) -> Found:
    """``torch_impl.decoding.greedy``."""

    def of(images: int) -> Found:
        table = _Table(model, start, end, max_length, device, images)
        return _plain(search.greedy(table, table.images, table.lengths, max_length=max_length)[-1:])

    return _also_alone(of)


def _another(word: int, V: int, end: int) -> int:
    """Another word than ``word`` and ``end``, for the images beside the case; ``word`` if none."""
    return next((w % V for w in range(word + 1, word + V) if w % V != end), word)


def _other(uniform: float) -> float:
    """Another number in [0, 1), for the images beside the case."""
    return (uniform + 0.5) % 1


def sample(
    model: NextLogProbs, uniforms: Sequence[float], start: int, end: int, *, device: str
) -> Found:
    """``torch_impl.decoding.sample`` with given uniforms: the last of two samples an image."""
    table = _Table(model, start, end, len(uniforms) + 1, device)
    drawn = torch.tensor([*map(_other, uniforms)], dtype=torch.float64).repeat(IMAGES, 2, 1)
    drawn[-1, -1] = torch.tensor(uniforms, dtype=torch.float64)
    options: Any = {"max_length": table.max_length, "num_samples": 2}
    with patch.object(torch, "rand", lambda shape, device, **_: drawn.view(shape).to(device)):
        found = search.sample(table, table.images, table.lengths, **options)
    return _plain(found.hypotheses()[-1][-1:])


def scheduled_sampling(
    model: NextLogProbs,
    y: Sequence[int],
    epsilon: float,
    coins: Sequence[float],
    uniforms: Sequence[float],
    *,
    device: str,
) -> Tensor:
    """``torch_impl.training.scheduled_sampling.sampled_inputs``: the last of two sequences."""

    def tensor(case: Sequence[float]) -> Tensor:
        return torch.tensor([[*map(_other, case)], case], dtype=torch.float64, device=device)

    table: Any = _Cached(model, y[0], y[0], len(y), device)
    words = torch.tensor([[y[0], *y[:0:-1]], y], device=device)
    drawn = tensor(coins) < epsilon, tensor(uniforms)
    return sampled_inputs(table, words, table.images, table.lengths, *drawn)[-1]


def beam_search(
    model: NextLogProbs, start: int, end: int, beam: int, length: int, num: int, *, device: str
) -> Found:
    """``torch_impl.decoding.beam_search``."""
    options: Any = {"beam_size": beam, "max_length": length, "num_return": num}

    def of(images: int) -> Found:
        table: Any = _Cached(model, start, end, length, device, images)
        return _plain(search.beam_search(table, table.images, table.lengths, **options)[-1])

    return _also_alone(of)


class _Exported(OnnxCaptioner):
    """``NextLogProbs`` as an exported captioner; its state is its cache."""

    def __init__(self, cached: Any) -> None:
        self.cached, self.max_length = cached, cached.max_length
        self.start_id, self.end_id, self.pad_id = cached.start_id, cached.end_id, cached.pad_id

    def encode(self, features: Any, mask: Any = None) -> dict[str, Any]:
        return {"mask": features}

    def begin(self, memory: Any, copies: int) -> dict[str, Any]:
        self.cached.init_cache(self.cached.images, self.cached.lengths)
        return dict(memory)

    def step(self, tokens: Any, hypotheses: Any, state: dict[str, Any]) -> tuple[Any, Any]:
        if self.cached.words:
            self.cached.reorder(torch.as_tensor(hypotheses))
        return self.cached.step(torch.as_tensor(tokens)).numpy(), state


def exported_beam_search(
    model: NextLogProbs, start: int, end: int, beam: int, length: int, num: int
) -> Found:
    """``benchmarks.scoring.onnx_captioner.OnnxCaptioner.beam_search``."""
    options: Any = {"beam_size": beam, "max_length": length, "num_return": num}

    def of(images: int) -> Found:
        table = _Cached(model, start, end, length, "cpu", images)
        return _plain(_Exported(table).beam_search(table.images.numpy(), **options)[-1])

    return _also_alone(of)


def grid_beam_search(
    model: NextLogProbs,
    word: int,
    start: int,
    end: int,
    beam: int,
    length: int,
    num: int,
    *,
    device: str,
) -> Found:
    """``torch_impl.decoding.grid_beam.grid_beam_search``."""
    options: Any = {"beam_size": beam, "max_length": length, "num_return": num}
    words = [_another(word, model.table.shape[-1], end), word]

    def of(images: int) -> Found:
        table: Any = _Cached(model, start, end, length, device, images)
        return _plain(
            search_the_grid(table, table.images, table.lengths, words=words[-images:], **options)[
                -1
            ]
        )

    return _also_alone(of)


def middle_out_beam_search(
    model: HalvesLogProbs, middle: int, end: int, beam: int, length: int, num: int, *, device: str
) -> Found:
    """``torch_impl.decoding.middle_out.middle_out_beam_search``."""
    options: Any = {"beam_size": beam, "max_length": length, "num_return": num}
    middles = [_another(middle, model.table.shape[-1], end), middle]

    def of(images: int) -> Found:
        table: Any = _Halves(model, end, length, device, images)
        features = torch.zeros(images, 1, 1, device=device)
        found = search_outwards(table, features, middle=middles[-images:], **options)[-1]
        return [([*h.left[::-1], h.middle, *h.right], h.score) for h in found]

    return _also_alone(of)
