"""Middle-Out Decoding (Mehri and Sigal 2018): LSTM decoders with self-attention, P sides in turn.

A sequence is generated as its middle word, then a word on the left and one on the right in turn
(P = 2). Left-to-right decoding is P = 1, with the start token first. Step t belongs to side
t mod P: it reads the newest word of its side, and attends to the outputs and states of all sides.

Shapes: G independent models (lanes), each with its own weights, P sides, B sequences, T steps, L
rows of memory; d is the width of the states, m of the memory, e of a word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_impl.common.checks import one_of
from torch_impl.middle_out.loop import run_loop

Sizes = tuple[int, ...]

SELF_ATTENTION = ("none", "output", "hidden", "dual")
"""Self-attention of a decoder: none, to its outputs (5), to its states (6), or to both (7)."""


class Weights(NamedTuple):
    """The decoders' weights; the LSTM's gates are in the order i, f, o, g."""

    W: Tensor
    """(P, G, in, 4 d): rows for e_{t-1}, d_t (e), c_t (m), h~_t (d) and h_{t-1} (d)."""
    b: Tensor
    """(P, G, 4 d)."""
    W_a: Tensor | None = None
    """(P, G, d, m): scores the memory (4); no c_t if None."""
    W_d: Tensor | None = None
    """(P, G, d, e): scores the outputs; no d_t if None."""
    W_h: Tensor | None = None
    """(P, G, d, d): scores the states; no h~_t if None."""

    @property
    def sides(self) -> int:
        """P."""
        return self.W.shape[0]

    @property
    def reads_word(self) -> bool:
        """Whether e_{t-1} is an input; (5) has d_t instead."""
        return self.W_d is None or self.W_h is not None

    def side(self, p: int) -> Weights:
        """The weights of side ``p``, (G, ...)."""
        return Weights(*(None if w is None else w[p] for w in self))  # type: ignore[arg-type]


def weight_sizes(sides: int, d: int, m: int, e: int, self_attention: str) -> dict[str, Sizes]:
    """The shapes of one lane's `Weights`, (P, ...), by name; without memory m = 0.

    Raises:
        ValueError: ``self_attention`` is not one of `SELF_ATTENTION`.
    """
    one_of(self_attention, "self_attention", SELF_ATTENTION)
    of_outputs, of_states = (self_attention in (one, "dual") for one in ("output", "hidden"))
    rows = (2 if self_attention == "dual" else 1) * e + m + (d if of_states else 0) + d
    sizes: dict[str, Sizes] = {"W": (sides, rows, 4 * d), "b": (sides, 4 * d)}
    if m:
        sizes["W_a"] = (sides, d, m)
    if of_outputs:
        sizes["W_d"] = (sides, d, e)
    if of_states:
        sizes["W_h"] = (sides, d, d)
    return sizes


def input_entry(t: int, sides: int) -> int:
    """The entry of the generated order that step ``t`` reads: its side's newest, or the first."""
    return max(0, t + 1 - sides)


def attend(query: Tensor, rows: Tensor, mask: Tensor | None = None) -> Tensor:
    """Attention (2, 3): the mean of ``rows``, weighted by a softmax of scores; 0 without rows.

    Args:
        query: h W of the score h W r (equation 4), (..., m).
        rows: (..., L, m).
        mask: (..., L), True for valid; all if None.
    """
    scores = (rows @ query.unsqueeze(-1)).squeeze(-1)  # (..., L)
    if mask is None:
        weights = scores.softmax(-1)
    else:
        lowest = torch.finfo(scores.dtype).min
        weights = scores.masked_fill(~mask, lowest).softmax(-1).masked_fill(~mask, 0)
    return (weights.unsqueeze(-2) @ rows).squeeze(-2)


def lstm_cell(gates: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """The next (h, c) from the pre-activations (..., 4 d) of the gates i, f, o, g."""
    i, f, o, g = gates.chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def step(
    weights: Weights,
    state: tuple[Tensor, Tensor],
    e: Tensor,
    memory: Tensor | None,
    mask: Tensor | None,
    outputs: Tensor,
    states: Tensor,
    attend_mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """One step of one side: S in equations (1), (5), (6), (7).

    Args:
        weights: of the side, (G, ...).
        state: (h_{t-1}, c_{t-1}) of the side, (G, B, d) each.
        e: e_{t-1}, the side's newest word (G, B, e).
        memory: the encoder's states (G, B, L, m), if there is ``W_a``.
        mask: (G, B, L), True for valid rows of the memory; all if None.
        outputs: the words of all sides so far (G, B, t + 1, e), the first included.
        states: the states of all sides so far (G, B, t, d).
        attend_mask: (G, B, t), True for the steps that may be attended to; all if None.

    Returns:
        The side's next (h, c).
    """
    h, c = state
    inputs = [e] if weights.reads_word else []
    if weights.W_d is not None:
        outputs_mask = None if attend_mask is None else F.pad(attend_mask, (1, 0), value=True)
        inputs.append(attend(h @ weights.W_d, outputs, outputs_mask))
    if weights.W_a is not None:
        assert memory is not None
        inputs.append(attend(h @ weights.W_a, memory, mask))
    if weights.W_h is not None:
        inputs.append(attend(h @ weights.W_h, states, attend_mask))
    return lstm_cell(torch.cat([*inputs, h], -1) @ weights.W + weights.b.unsqueeze(-2), c)


def run(
    weights: Weights,
    state: tuple[Tensor, Tensor],
    inputs: Tensor,
    memory: Tensor | None = None,
    mask: Tensor | None = None,
    attend_mask: Tensor | None = None,
    active: Sequence[int] | None = None,
) -> tuple[Tensor, Tensor]:
    """`step` over all given words, by a sequential loop with a custom backward.

    Products that need no state are computed once for all steps: inputs and keys in the forward
    pass, the weights' gradients in the backward pass. The precision is that of the weights, under
    autocast too.

    Args:
        weights: of all sides.
        state: (h_0, c_0), (G, B, d) each, the start of every side.
        inputs: the words in the generated order (G, B, T, e); step t predicts entry t + 1.
        memory: (G, B, L, m), if there is ``W_a``.
        mask: (G, B, L), True for valid rows of the memory; all if None.
        attend_mask: (G, B, T), True for the steps whose state and word may be attended to; all if
            None.
        active: the number of active sequences at each step, non-increasing; they come first in the
            batch. All if None.

    Returns:
        The states h and c after every step, (G, B, T, d) each; 0 where a sequence is not active.
    """

    def own(x: Tensor) -> Tensor:
        return x.to(weights.W.dtype)

    with torch.autocast(weights.W.device.type, enabled=False):
        h, c = _run(
            weights,
            (own(state[0]), own(state[1])),
            own(inputs),
            None if memory is None else own(memory),
            mask,
            attend_mask,
            active,
        )
    return h, c


def _run(
    weights: Weights,
    state: tuple[Tensor, Tensor],
    inputs: Tensor,
    memory: Tensor | None,
    mask: Tensor | None,
    attend_mask: Tensor | None,
    active: Sequence[int] | None,
) -> tuple[Tensor, Tensor]:
    """`run` in one precision."""
    T, P = inputs.shape[2], weights.sides
    width = inputs.shape[3] if weights.reads_word else 0
    words = inputs.transpose(1, 2)  # (G, T, B, e)
    read = torch.tensor([input_entry(t, P) for t in range(T)], device=words.device)
    e = words.index_select(1, read)[..., :width]  # (G, T, B, e), or no columns
    X = e.new_empty(*words.shape[:3], weights.W.shape[-1])  # (G, T, B, 4 d)
    for p in range(P):
        X[:, p::P] = _linear(e[:, p::P], weights.W[p, :, :width], weights.b[p])
    W_z, counts = weights.W[:, :, width:], list(active or [inputs.shape[1]] * T)
    attended: dict[str, Any] = {}
    if weights.W_a is not None:
        assert memory is not None
        by_side = (_linear(memory, weights.W_a[p].transpose(1, 2)) for p in range(P))
        # (P, B, G, L, d) and (B, G, L, m)
        attended["keys"] = torch.stack([keys.transpose(0, 1) for keys in by_side])
        attended["values"] = memory.transpose(0, 1)
        attended["mask"] = None if mask is None else mask.transpose(0, 1)
    if P > 1 and weights.W_d is None and weights.W_h is None:
        return _side_by_side(X, W_z, state, counts, attended)
    if weights.W_d is not None:
        attended |= {"words": words, "W_d": weights.W_d}
    if attend_mask is not None:
        attended["attend_mask"] = attend_mask.transpose(0, 1)
    h, c = run_loop(X, W_z, *state, counts, W_h=weights.W_h, **attended)
    return h.transpose(1, 2), c.transpose(1, 2)


def run_by_steps(
    weights: Weights,
    state: tuple[Tensor, Tensor],
    inputs: Tensor,
    memory: Tensor | None = None,
    mask: Tensor | None = None,
    attend_mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """`run` in the paper's order: `step` by `step`, under autograd."""
    P, past, states = weights.sides, [state] * weights.sides, state[0].unsqueeze(2)[:, :, :0]
    for t in range(inputs.shape[2]):
        newest, outputs = inputs[:, :, input_entry(t, P)], inputs[:, :, : t + 1]
        past_mask = None if attend_mask is None else attend_mask[:, :, :t]
        side = weights.side(t % P)
        past.append(step(side, past[-P], newest, memory, mask, outputs, states, past_mask))
        states = torch.cat([states, past[-1][0].unsqueeze(2)], 2)
    h, c = (torch.stack(x, 2) for x in zip(*past[P:], strict=True))
    return h, c


def _side_by_side(
    X: Tensor,
    W: Tensor,
    state: tuple[Tensor, Tensor],
    counts: Sequence[int],
    attended: Mapping[str, Any],
) -> tuple[Tensor, Tensor]:
    """`run` without self-attention: the sides are independent, and become P G lanes."""
    G, T, P = X.shape[0], X.shape[1], W.shape[0]
    K = -(-T // P)
    X = F.pad(X, (0, 0, 0, 0, 0, K * P - T)).unflatten(1, (K, P))  # (G, K, P, B, 4 d)
    X = X.movedim(2, 0).flatten(0, 1)  # (P G, K, B, 4 d)
    lanes: dict[str, Any] = {}
    for name, x in attended.items():
        if name == "keys" and x is not None:  # (P, B, G, L, d) to (1, B, P G, L, d)
            lanes[name] = x.transpose(0, 1).flatten(1, 2).unsqueeze(0)
        else:
            lanes[name] = None if x is None else x.repeat(1, P, *[1] * (x.dim() - 2))
    h_0, c_0 = (x.repeat(P, 1, 1) for x in state)
    found = run_loop(X, W.flatten(0, 1).unsqueeze(0), h_0, c_0, counts[::P], **lanes)
    # (P G, K, B, d) to (G, B, T, d)
    h, c = (x.unflatten(0, (P, G)).permute(1, 3, 2, 0, 4).flatten(2, 3)[:, :, :T] for x in found)
    return h, c


def _linear(x: Tensor, W: Tensor, b: Tensor | None = None) -> Tensor:
    """x W + b for x (G, ., ., in), W (G, in, out), b (G, out): one product per lane."""
    rows = x.flatten(1, 2)
    y = rows @ W if b is None else torch.baddbmm(b.unsqueeze(1), rows, W)
    return y.unflatten(1, x.shape[1:3])
