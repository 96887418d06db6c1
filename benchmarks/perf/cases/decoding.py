"""Decoding: recomputing the whole prefix at every token, against a KV cache."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.perf.cases.case import COMPILED, GRAPHED, HALVES, Case, Subject, Work
from benchmarks.perf.cases.expansions import ATTENTION
from benchmarks.perf.cases.models import MODEL, captioner, captions, features
from torch_impl.common.protocols import DecoderCache
from torch_impl.decoding import search as decoding
from torch_impl.decoding.graphs import GraphedBeamSearch
from torch_impl.decoding.rounded_weights import LINEAR, round_weights
from torch_impl.layers.kv_cache import TransformerCache
from torch_impl.layers.transformer import Mixer
from torch_impl.models import Captioner

ROUNDED = {f"incremental+{dtype}": dtype for dtype in LINEAR}
"""Implementations with a KV cache and rounded decoder weights, and the weights' dtype."""
IMPLEMENTATIONS = (
    "prefix",
    "incremental",
    "prefix-auto",
    "incremental" + COMPILED,
    "incremental" + GRAPHED,
    *ROUNDED,
)
"""Whole prefixes by literal expansions; a KV cache; whole prefixes by "auto" expansions; a KV cache
with the encoder and the step compiled, all of it as CUDA graphs, or with rounded decoder
weights."""


class _Whole:
    """A captioner without a KV cache: it decodes whole prefixes."""

    def __init__(self, model: Captioner) -> None:
        self.start_id, self.end_id, self.pad_id = model.start_id, model.end_id, model.pad_id
        self.max_length, self.encode, self.decode = model.max_length, model.encode, model.decode


class _Compiled(_Whole):
    """A captioner with a KV cache, whose step is compiled once for all lengths."""

    is_stochastic = False

    def __init__(self, model: Captioner) -> None:
        super().__init__(model)
        self.encode = torch.compile(model.encode, dynamic=False)
        self._init_cache = model.init_cache
        self._step = torch.compile(TransformerCache.step, dynamic=True)

    def init_cache(self, *arguments: Any) -> DecoderCache:
        state = self._init_cache(*arguments)
        return _CompiledCache(partial(self._step, state), state.reorder)


@dataclass(frozen=True)
class _CompiledCache:
    step: Callable[[Tensor], Tensor]
    reorder: Callable[[Tensor], None]


def _precision(case: Case, device: torch.device) -> torch.autocast:
    return torch.autocast(device.type, HALVES.get(case.precision), enabled=case.precision in HALVES)


def _decoding(
    case: Case, implementation: str, device: torch.device, *, beam: bool, encoded: bool = False
) -> Work:
    sizes = case.sizes
    if implementation not in IMPLEMENTATIONS:
        raise ValueError(f"expected one of {', '.join(IMPLEMENTATIONS)}")
    form = "literal" if implementation == "prefix" else "auto"
    if all(Mixer.parse(text).attends for text in (sizes.encoder, sizes.decoder)):
        form = ATTENTION
    model = captioner(case, form, device, training=False)
    with torch.no_grad():
        # no caption ends early: the same length whatever the weights
        model.vocabulary.bias[model.end_id] = -1e4
    images = features(case, device)
    if encoded:
        with torch.no_grad(), _precision(case, device):
            memory = model.encode(images)
        model.encode = lambda features, lengths=None: memory  # type: ignore[method-assign]
    readers: dict[str, Callable[[Captioner], Any]] = {
        "incremental": lambda model: model,
        "incremental" + COMPILED: _Compiled,
        **dict.fromkeys(ROUNDED, lambda model: model),
    }
    if implementation in ROUNDED:
        round_weights(model, ROUNDED[implementation])
    reader = readers.get(implementation, _Whole)(model)
    search: Callable[..., Any] = partial(decoding.greedy, reader, max_length=sizes.tokens)
    found: dict[str, Any] = {"beam_size": sizes.beam if beam else 1, "max_length": sizes.tokens}
    if implementation.endswith(GRAPHED):
        if device.type != "cuda":
            raise ValueError("CUDA graphs are of a GPU, expected --device cuda")
        search = GraphedBeamSearch(model, **found)
    elif beam:
        search = partial(decoding.beam_search, reader, **found)

    def decode() -> Any:
        with _precision(case, device):
            return search(images)

    return Work(decode, [*model.parameters(), images])


def _weights(case: Case) -> int:
    """Bytes of float32 weights that all steps read, which dominate for one image.

    The cross-attention's projections of the memory are computed once and left out.
    """
    model = captioner(case, "auto", torch.device("cpu"), training=False)
    once = re.compile(r"cross_attention\.(key|value)\.")
    of_decoder = (x for name, x in model.decoder.named_parameters() if not once.search(name))
    step = sum(x.nbytes for x in (*of_decoder, *model.vocabulary.parameters()))
    return step * (case.sizes.tokens - 1)


@torch.no_grad()
def _error(case: Case, weights: str, device: torch.device) -> dict[str, float]:
    """The largest error of teacher-forced log p against float64."""
    images, words = features(case, device), captions(case, device)
    model, exact = (captioner(case, "auto", device, training=False) for _ in range(2))
    exact.double()
    if weights in LINEAR:
        round_weights(model, weights)
    right = exact.decode(words, exact.encode(images.double()))
    return {"error": (model.decode(words, model.encode(images)) - right).abs().max().item()}


SUBJECTS = [
    Subject(
        "greedy",
        "the most likely word at each step, to the full length",
        ("batch", "length", "tokens", *MODEL),
        IMPLEMENTATIONS,
        make=partial(_decoding, beam=False),
    ),
    Subject(
        "beam",
        "beam search, to the full length",
        ("batch", "beam", "length", "tokens", *MODEL),
        IMPLEMENTATIONS,
        make=partial(_decoding, beam=True),
    ),
    Subject(
        "beam-encoded",
        "beam search of images that are encoded already, to the full length",
        ("batch", "beam", "length", "tokens", *MODEL),
        IMPLEMENTATIONS,
        make=partial(_decoding, beam=True, encoded=True),
        least_bytes=_weights,
    ),
    Subject(
        "decoder-weights",
        "the largest error of log p, against float64, by the decoder's weights",
        ("batch", "length", "tokens", *MODEL),
        ("float32", *LINEAR),
        count=_error,
        precisions=("float32",),
    ),
]
