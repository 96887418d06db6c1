"""Our recurrent layers and captioners as candidates, with the operators' parameter names."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from benchmarks.verify.project.modules import call, call_beside, read_by_steps, select
from torch_impl.models import RecurrentCaptioner
from torch_impl.models.recurrent import RecurrentConfiguration
from torch_impl.recurrent import LSTM, AttentiveLSTM, Masks, State, read_only_inputs
from torch_impl.recurrent.cell import cell

Parameters = Mapping[str, Tensor]


def given(T: Parameters, inputs: int) -> dict[str, Tensor]:
    """T, a map of x, h and the context, as an ``LSTM``'s parameters; x has ``inputs`` channels."""
    d = len(T["bias"]) // 4
    x, h, z = T["weight"].tensor_split([inputs, inputs + d], 1)
    return {"weight_x": torch.cat([x, z], 1), "weight_h": h, "bias": T["bias"]}


def printed(W: Parameters, names: str) -> dict[str, Tensor]:
    """W_ix, W_im and so on as an ``LSTM``'s parameters."""
    x, m = (torch.cat([W[f"W_{name}{source}"] for name in names]) for source in "xm")
    return {"weight_x": x, "weight_h": m}


def lstm_cell(x: Tensor, h: Tensor, c: Tensor, parameters: Parameters) -> Tensor:
    """``torch_impl.recurrent.cell.cell``, as in ``LSTM.step``."""
    weights = given(parameters, len(x))
    inputs = torch.nn.functional.linear(x, weights["weight_x"], weights["bias"])
    return torch.stack(cell(inputs, State(h, c), weights["weight_h"]))


def _lstm(
    X: Tensor, parameters: Parameters, masks: Masks | None, implementation: str, lengths: Tensor
) -> Tensor:
    d_x, d = X.shape[-1], len(parameters["bias"]) // 4
    module = partial(LSTM, d_x, d, implementation=implementation)
    weights = given(parameters, d_x)
    return cast(Tensor, call(module, weights, X, None, lengths, masks=masks)[0])


def lstm(X: Tensor, parameters: Parameters, mask: Tensor, *, implementation: str) -> Tensor:
    """``torch_impl.recurrent.LSTM``."""
    return _lstm(X, parameters, None, implementation, mask)


def library_lstm(X: Tensor, parameters: Parameters, lengths: Tensor) -> Tensor:
    """``torch_impl.recurrent.LSTM`` with PyTorch's LSTM, for right-padded batches only."""
    return _lstm(X, parameters, None, "library", lengths)


def _alone(
    X: Tensor, parameters: Parameters, masks: Masks, implementation: str, attentive: bool
) -> Tensor:
    """Run one sequence (T, d_x) with masks (T, d) as a batch."""
    batch = Masks(*(None if mask is None else mask[:, None] for mask in masks))
    if attentive:
        return _attentive(X[None], parameters, batch, implementation)[0]
    return _lstm(X[None], parameters, batch, implementation, torch.tensor([len(X)]))[0]


def _attentive(X: Tensor, parameters: Parameters, masks: Masks, implementation: str) -> Tensor:
    """``AttentiveLSTM`` as an LSTM: its memory is a single 1, by which the bias is multiplied."""
    d_x, d = X.shape[-1], len(parameters["bias"]) // 4
    weights = given(parameters, d_x)
    bias, one = weights["bias"][:, None], X.new_ones(1, 1)
    weights = {
        "lstm.weight_x": torch.cat([weights["weight_x"], bias], 1),
        "lstm.weight_h": weights["weight_h"],
        "lstm.bias": torch.zeros_like(weights["bias"]),
        "attention.key.weight": one,
        "attention.key.bias": one[0],
        "attention.query.weight": X.new_ones(1, d),
        "attention.score.weight": one,
    }
    module = partial(AttentiveLSTM, d_x, d, 1, 1, implementation=implementation)
    return cast(Tensor, call(module, weights, X, one[None], None, masks=masks)[0])


def zoneout(
    X: Tensor,
    parameters: Parameters,
    z_h: Tensor,
    z_c: Tensor,
    *,
    implementation: str,
    attentive: bool = False,
) -> Tensor:
    """``torch_impl.recurrent.LSTM``, or ``AttentiveLSTM``, with zoneout."""
    return _alone(X, parameters, Masks(z_c=z_c, z_h=z_h), implementation, attentive)


def recurrent_dropout(
    X: Tensor,
    parameters: Parameters,
    keep: Tensor,
    p: float,
    dropped: str,
    *,
    implementation: str,
    attentive: bool = False,
) -> Tensor:
    """``torch_impl.recurrent.LSTM``, or ``AttentiveLSTM``, with recurrent dropout."""
    factors = keep.to(X.dtype) / (1 - p)
    masks = Masks(h_dropout=factors) if dropped == "state" else Masks(g_dropout=factors)
    return _alone(X, parameters, masks, implementation, attentive)


class _ByBeams(AttentiveLSTM):
    """Read by ``step`` with two hypotheses of a sequence; the first reads it from its end."""

    def forward(
        self, xs: Tensor, memory: Tensor, memory_lengths: Any = None, *_: Any
    ) -> tuple[Tensor, State]:
        projected = self.attention.project(memory, memory_lengths)
        state, hs = self.lstm.zero_state(2 * len(xs)), []
        for both in torch.stack([xs.flip(1), xs], 1).unbind(2):  # (B, 2, d_x)
            state = self.step(both.flatten(0, 1), state, projected)
            hs.append(state.h.unflatten(0, (-1, 2))[:, 1])
        return torch.stack(hs, 1), state


def attentive_lstm(
    X: Tensor,
    s: Tensor,
    parameters: Parameters,
    mask: Tensor,
    *,
    implementation: str,
    by_beams: bool = False,
) -> Tensor:
    """``torch_impl.recurrent.AttentiveLSTM``, or its steps of two hypotheses."""
    d_x, (d_a, d_s) = X.shape[-1], parameters["score.W_s"].shape
    T, W = select(parameters, "lstm."), select(parameters, "score.")
    weights = {f"lstm.{name}": value for name, value in given(T, d_x).items()} | {
        "attention.key.weight": W["W_s"],
        "attention.key.bias": W["b"],
        "attention.query.weight": W["W_h"],
        "attention.score.weight": W["w"][None],
    }
    d = len(T["bias"]) // 4
    kind = _ByBeams if by_beams else AttentiveLSTM
    module = partial(kind, d_x, d, d_s, d_a, implementation=implementation)
    return cast(Tensor, call(module, weights, X, s, mask)[0])


def read_only_lstm_cell(
    x: Tensor, m: Tensor, c: Tensor, read: Tensor, parameters: Parameters
) -> Tensor:
    """``torch_impl.recurrent.cell.cell`` with a read-only unit."""
    weights = printed(parameters, "iforc")
    state = State(m[None], c[None])
    inputs = x[None] @ weights["weight_x"].T
    found = cell(inputs, state, weights["weight_h"], read[None], squash=False)
    return torch.cat(found)


def read_only_lstm(
    X: Tensor, parameters: Parameters, reading: str, mask: Tensor, *, implementation: str
) -> Tensor:
    """``torch_impl.recurrent.LSTM`` with a read-only unit."""
    read_only = reading != "none"
    weights = printed(parameters, "iforc" if read_only else "ifoc")
    d_x, d = X.shape[-1], len(parameters["W_im"])
    plain = partial(LSTM, bias=False, squash=False, implementation=implementation)
    module = partial(plain, d_x, d, read_only=read_only)
    # a step's input before may lie before a hole
    order = (~mask).to(torch.int8).argsort(dim=1, stable=True)
    read = None
    if read_only:
        read = _rows(read_only_inputs(_rows(X, order), reading), order.argsort(1))
    return cast(Tensor, call(module, weights, X, None, mask, read=read)[0])


def _rows(X: Tensor, index: Tensor) -> Tensor:
    """The rows ``index`` (B, T) of X (B, T, d)."""
    return X.take_along_dim(index[..., None], 1)


def read_only_captioner(
    features: Tensor,
    tokens: Tensor,
    parameters: Parameters,
    reading: str,
    *,
    by_steps: bool = False,
) -> Tensor:
    """``torch_impl.models.RecurrentCaptioner`` of the read-only paper, or its ``init_cache``."""
    if by_steps:
        parameters = {name: torch.tensor(value) for name, value in parameters.items()}
    (V, d_x), d = parameters["W_e"].shape, len(parameters["W_im"])
    unit = reading != "none"
    lstm = printed(parameters, "iforc" if unit else "ifoc")
    weights = {f"decoder.{name}": value for name, value in lstm.items()} | {
        "input.weight": parameters["W_i"].T,
        "input.bias": parameters["b_i"],
        "embedding.weight": parameters["W_e"],
        "vocabulary.weight": parameters["W_pm"],
    }
    configuration = RecurrentConfiguration(
        vocabulary_size=V,
        d_feature=features.shape[-1],
        d_embedding=d_x,
        hidden_size=d,
        read_only=reading if unit else None,
        bias=False,
        squash=False,
        max_length=len(tokens),
        dropout=0.0,
        start_id=0,
        end_id=1,
        pad_id=0,
    )
    module = partial(RecurrentCaptioner, configuration)
    if by_steps:
        return read_by_steps(module, weights, features, tokens)
    return call_beside(module, weights, features, tokens)
