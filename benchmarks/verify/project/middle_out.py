"""Our Middle-Out decoders and de-noising losses as candidates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from benchmarks.verify.project.modules import select
from torch_impl.middle_out import Weights, attend, interleave, run, run_by_steps, step
from torch_impl.models import denoising

Parameters = Mapping[str, Tensor]


def general_attention(h: Tensor, rows: Tensor, W: Tensor, mask: Tensor) -> Tensor:
    """``torch_impl.middle_out.attend``."""
    return attend(h @ W, rows.masked_fill(~mask[..., None], 0), mask)


def _weights(*sides: Parameters) -> Weights:
    names = [name for name in ("W_a", "W_d", "W_h") if name in sides[0]]
    return Weights(
        torch.stack([p["lstm.weight"].T for p in sides])[:, None],
        torch.stack([p["lstm.bias"] for p in sides])[:, None],
        **{name: torch.stack([p[name] for p in sides])[:, None] for name in names},
    )


def middle_out_step(
    h: Tensor,
    c: Tensor,
    e: Tensor,
    memory: Tensor,
    outputs: Tensor,
    states: Tensor,
    parameters: Parameters,
    self_attention: str,
) -> Tensor:
    """``torch_impl.middle_out.step``."""
    h, c, e, memory, outputs, states = (x[None, None] for x in (h, c, e, memory, outputs, states))
    found = step(_weights(parameters).side(0), (h, c), e, memory, None, outputs, states)
    return torch.stack(found).flatten(1, 2)[:, 0]


def _last(x: Tensor) -> Tensor:
    """(2, 2, *x.shape): ``x`` as the last sequence of the last lane; in the others its reverse."""
    other = x.flip(-1)
    return torch.stack([other, other, other, x]).unflatten(0, (2, 2))


def middle_out_captioner(
    left: Tensor,
    middle: int,
    right: Tensor,
    memory: Tensor,
    h: Tensor,
    c: Tensor,
    parameters: Parameters,
    self_attention: str,
    *,
    implementation: str = "custom_backward",
) -> Tensor:
    """``torch_impl.middle_out.run``, or literal ``run_by_steps``; batch of two, two lanes."""
    sides = [select(parameters, f"{side}.") for side in ("left", "right")]
    # words may use every id, so padding is negative
    words = interleave(left.tolist(), middle, right.tolist(), -1)
    tokens, following = (torch.tensor(part, device=h.device) for part in (words[:-1], words[1:]))
    if not len(tokens):
        return parameters["embedding.weight"].new_zeros(0, len(parameters["embedding.weight"]))
    inputs = parameters["embedding.weight"][tokens.clamp(min=0)]
    of_lanes = (None if w is None else torch.cat([w.flip(0), w], 1) for w in _weights(*sides))
    weights = Weights(*of_lanes)  # type: ignore[arg-type]
    decode = run_by_steps if implementation == "literal" else run
    state, given = (_last(h), _last(c)), (_last(inputs), _last(memory))
    hs, _ = decode(weights, state, *given, attend_mask=_last(following >= 0))
    rows = []
    for p, (side, half) in enumerate(zip(sides, (left, right), strict=True)):
        of_side = hs[-1, -1, p::2][: len(half)]
        logits = of_side @ side["vocabulary.weight"].T + side["vocabulary.bias"]
        rows.append(logits.log_softmax(-1))
    return torch.cat(rows)


def middle_out_loss(
    left: Tensor, middle: int, right: Tensor, *rest: Any, implementation: str = "custom_backward"
) -> Tensor:
    """Cross-entropy of both halves by ``middle_out_captioner``."""
    log_p = middle_out_captioner(left, middle, right, *rest, implementation=implementation)
    return -log_p.gather(1, torch.cat([left, right])[:, None]).sum()


def symmetric_sequence(mu: float, N: int) -> Tensor:
    """``torch_impl.models.denoising.symmetric``."""
    middle = torch.tensor(mu, dtype=torch.float64)
    return denoising.symmetric(middle, torch.tensor(N), 2 * N + 1)


def mse(y_hat: Tensor, y: Tensor) -> Tensor:
    """``torch_impl.models.denoising.mse``."""
    return denoising.mse(y_hat, y, torch.tensor(len(y), device=y.device))


def symmetric_mse(y_hat: Tensor) -> Tensor:
    """``torch_impl.models.denoising.symmetric_mse``."""
    return denoising.symmetric_mse(y_hat, torch.tensor(len(y_hat), device=y_hat.device))
