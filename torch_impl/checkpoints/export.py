"""A captioner as two ONNX graphs: the encoder, and one step of the decoder.

The step takes the KV cache as inputs and returns it, so that a search in any language needs only an
ONNX runtime. The axes batch, length, hypotheses and steps are dynamic; steps may be 0.

    encoder   features (batch, length, d_feature), mask (batch, length): True where valid
           -> keys.i, values.i (batch, length, d): of decoder layer i's cross-attention
    decoder   tokens (batch, hypotheses): the newest of each hypothesis,
              hypotheses (batch, hypotheses): the hypothesis of its image that each continues,
              mask, keys.i, values.i, past.*: the last step's present.*, at first empty
           -> log_probs (batch, hypotheses, V): of the token after, present.*
"""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from torch_impl.layers.kv_cache import CachedLayer, decode_step, init_cache, slot_axis
from torch_impl.models import BaseCaptioner, Captioner

OPSET = 18


class Graphs(NamedTuple):
    """The serialised ONNX models."""

    encoder: bytes
    decoder: bytes


class _Encoder(nn.Module):
    """Features (B, L, d_feature) to the keys and values (B, L, d) of every cross-attention."""

    def __init__(self, model: Captioner) -> None:
        super().__init__()
        self.model = model

    def forward(self, features: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        memory = self.model.encode(features, mask)
        return tuple(
            projected
            for layer in _layers(self.model)
            for projected in layer.cross_attention.project(memory, mask)
        )


class _Concatenated:
    """A `Buffer` (..., steps, hypotheses, ...) that grows by concatenation."""

    def __init__(self, past: Tensor) -> None:
        self.past = self.present = past

    def append(self, rows: Tensor, slots: int) -> Tensor:
        axis, past = slot_axis(rows), self.past
        if past.shape[-1] != rows.shape[-1]:  # R's rows grow too, by the newest token
            past = torch.cat([past, past.new_zeros(*past.shape[:-1], 1)], -1)
        self.present = torch.cat([past, rows.unsqueeze(axis)], axis)
        return self.present.flatten(axis, axis + 1)


class _Decoder(nn.Module):
    """A step of the decoder, with its KV cache as inputs and outputs."""

    def __init__(self, model: Captioner) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        tokens: Tensor,
        hypotheses: Tensor,
        mask: Tensor,
        memory: Sequence[Sequence[Tensor]],
        ancestry: Tensor,
        past: Sequence[dict[str, Tensor]],
    ) -> tuple[Tensor, ...]:
        (B, K), t = tokens.shape, ancestry.shape[-1]
        ancestry = ancestry.gather(1, hypotheses[..., None].expand(B, K, t))
        newest = torch.arange(K).expand(B, K) + t * K
        ancestry = torch.cat([ancestry, newest[..., None]], -1)
        joined = [{name: _Concatenated(rows) for name, rows in kept.items()} for kept in past]
        layers = [
            CachedLayer(layer, keys, values, mask, rows)
            for layer, (keys, values), rows in zip(_layers(self.model), memory, joined, strict=True)
        ]
        log_probs = decode_step(self.model, layers, tokens, ancestry)
        return log_probs, ancestry, *(rows.present for kept in joined for rows in kept.values())


def to_onnx(model: BaseCaptioner) -> Graphs:
    """The graphs of ``model``, in its precision, by the literal implementation.

    Raises:
        ValueError: a family of captioners that cannot be exported, or a precision below 32 bits.
        ImportError: a package of PyTorch's exporter is missing.
    """
    if not isinstance(model, Captioner):
        family = model.configuration.family
        raise ValueError(f"a captioner of the family {family} cannot be exported: mixers alone can")
    if model.vocabulary.weight.dtype not in (torch.float32, torch.float64):
        raise ValueError(
            f"weights are {model.vocabulary.weight.dtype}, expected float32 or float64"
        )
    # "auto" branches on the sizes, which are dynamic in a graph
    model = copy.deepcopy(model).cpu().eval().implement("literal")
    return Graphs(_encoder_graph(model), _decoder_graph(model))


B, L, K, STEPS = 2, 5, 3, 4
"""Sizes to trace with: all different, so that the exporter confuses none."""
_BATCH = {0: "batch"}
_ROWS, _PAIRS = _BATCH | {1: "length"}, _BATCH | {1: "hypotheses"}


def _encoder_graph(model: Captioner) -> bytes:
    features = model.vocabulary.weight.new_zeros(B, L, model.configuration.d_feature)
    return _graph(
        _Encoder(model),
        (features, torch.ones(B, L, dtype=torch.bool)),
        (_ROWS, _ROWS),
        ["features", "mask"],
        _of_memory(model),
    )


def _decoder_graph(model: Captioner) -> bytes:
    layers, weight = _layers(model), model.vocabulary.weight
    # two different tensors: the exporter merges inputs that are the same object
    tokens, hypotheses = torch.zeros(2, B, K, dtype=torch.int64).unbind()
    memory = weight.new_zeros(len(layers), 2, B, L, model.configuration.d_model)
    past, steps, names = [], [], ["path"]
    for i, layer in enumerate(layers):
        rows = init_cache(layer.mixer, B, STEPS * K, STEPS)
        # (..., STEPS K, ...) -> (..., STEPS, K, ...)
        past.append({n: x.unflatten(slot_axis(x), (STEPS, K)) for n, x in rows.items()})
        steps.append({n: _axes(x) for n, x in rows.items()})
        names += [f"{i}.{n}" for n in rows]
    return _graph(
        _Decoder(model),
        (
            tokens,
            hypotheses,
            torch.ones(B, L, dtype=torch.bool),
            [list(pair.unbind()) for pair in memory],
            torch.zeros(B, K, STEPS, dtype=torch.int64),
            past,
        ),
        (_PAIRS, _PAIRS, _ROWS, [[_ROWS] * 2] * len(layers), _PAIRS | {2: "steps"}, steps),
        ["tokens", "hypotheses", "mask", *_of_memory(model), *(f"past.{n}" for n in names)],
        ["log_probs", *(f"present.{n}" for n in names)],
    )


def _of_memory(model: Captioner) -> list[str]:
    """The names of cross-attention's keys and values."""
    return [f"{what}.{i}" for i in range(len(_layers(model))) for what in ("keys", "values")]


def _layers(model: Captioner) -> list[Any]:
    return list(model.decoder.layers)


def _axes(rows: Tensor) -> dict[int, str]:
    """The dynamic axes of ``rows``, whose slots are (steps, hypotheses)."""
    axis = slot_axis(rows)
    axes = {0: "batch", axis: "steps", axis + 1: "hypotheses"}
    # R has the tokens of a slot's ancestry as its last axis
    return axes | {rows.dim(): "steps"} if rows.dim() == 5 else axes


def _graph(
    module: nn.Module,
    inputs: tuple[Any, ...],
    axes: tuple[Any, ...],
    input_names: list[str],
    output_names: list[str],
) -> bytes:
    from onnx_ir.passes.common import ClearMetadataAndDocStringPass

    from torch_impl.checkpoints.onnx_scalars import TRANSLATIONS

    with torch.no_grad(), warnings.catch_warnings(), _without_log():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            module.eval(),
            inputs,
            dynamo=True,
            dynamic_shapes=axes,
            input_names=input_names,
            output_names=output_names,
            opset_version=OPSET,
            custom_translation_table=TRANSLATIONS,
            optimize=False,  # its rules round Psi's epsilon to zero
            verbose=False,
        )
    assert program is not None
    # its metadata names files of this machine
    ClearMetadataAndDocStringPass()(program.model)
    serialised: bytes = program.model_proto.SerializeToString()
    return serialised


@contextmanager
def _without_log() -> Iterator[None]:
    """Silence the exporter, which logs missing packages, the traced code, and errors it handles."""
    disabled = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(disabled)
