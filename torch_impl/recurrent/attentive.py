"""Additive attention, and the LSTM that attends at every step (ARNet 3, 4)."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_impl.common.checks import positive
from torch_impl.common.padding import (
    Lengths,
    check_tokens,
    padding_mask,
    zero_padding,
)
from torch_impl.recurrent.attentive_loop import attentive_loop
from torch_impl.recurrent.cell import Masks, State
from torch_impl.recurrent.lstm import LSTM


class ProjectedMemory(NamedTuple):
    """The local information vectors, projected once for all steps."""

    memory: Tensor
    """(B, L, d_s), zero in padding."""
    keys: Tensor
    """(B, L, d_a), W_s s_i + b."""
    mask: Tensor | None
    """(B, L), True for valid rows; all if None. In a sequence without valid rows all are True, as a
    softmax over no rows is NaN; its memory is zero."""


class SoftAttention(nn.Module):
    """z_t = sum_i softmax_i(w^T tanh(W_s s_i + W_h h_{t-1} + b)) s_i (ARNet 4).

    The score is the additive one of Bahdanau et al. (2015).

    Args:
        d_memory: d_s, of the local information vectors s_i.
        d_state: d, of h.
        d_attention: d_a, of the perceptron's hidden layer.

    Raises:
        ValueError: a size below 1.
    """

    def __init__(self, d_memory: int, d_state: int, d_attention: int) -> None:
        super().__init__()
        self.key = nn.Linear(positive(d_memory, "d_memory"), positive(d_attention, "d_attention"))
        self.query = nn.Linear(positive(d_state, "d_state"), d_attention, bias=False)
        self.score = nn.Linear(d_attention, 1, bias=False)

    def project(self, memory: Tensor, lengths: Lengths | None = None) -> ProjectedMemory:
        """The memory (B, L, d_s) and its keys, computed once for all steps.

        Raises:
            ValueError: the memory is not (B, L, d_s) or lengths do not fit it.
        """
        check_tokens(memory, self.key.in_features, "memory")
        mask = padding_mask(lengths, memory)
        memory = zero_padding(memory, mask)
        mask = None if mask is None else mask | ~mask.any(-1, keepdim=True)
        return ProjectedMemory(memory, self.key(memory), mask)

    def forward(self, h: Tensor, projected: ProjectedMemory) -> Tensor:
        """The contexts (B, K, d_s) of K states (B, K, d) of each sequence; zeros without rows."""
        hidden = (projected.keys[:, None] + self.query(h)[:, :, None]).tanh()  # (B, K, L, d_a)
        scores = self.score(hidden).squeeze(-1)  # (B, K, L)
        if projected.mask is not None:
            scores = scores.masked_fill(~projected.mask[:, None], -torch.inf)
        return scores.softmax(-1) @ projected.memory


class AttentiveLSTM(nn.Module):
    """The LSTM whose gates also read the context: T [x_t; h_{t-1}; z_t] (ARNet 3).

    The columns of ``lstm.weight_x`` are those of x_t, then those of z_t.

    Args:
        input_size: d_x.
        hidden_size: d.
        d_memory: d_s.
        d_attention: of the score; d if None.
        options: keywords of ``LSTM`` but ``read_only`` and ``squash``.

    Raises:
        ValueError: as ``LSTM``, or the implementation is "library", which does not attend.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        d_memory: int,
        d_attention: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self.input_size = positive(input_size, "input_size")
        d_memory = positive(d_memory, "d_memory")
        self.lstm = LSTM(input_size + d_memory, hidden_size, **options)
        self.check(self.lstm.implementation)
        self.attention = SoftAttention(d_memory, hidden_size, d_attention or hidden_size)

    def step(
        self, x: Tensor, state: State, projected: ProjectedMemory, masks: Masks | None = None
    ) -> State:
        """The state after x (B K, d_x), for K states (B K, d) of each of B sequences."""
        B = len(projected.memory)
        z = self.attention(state.h.unflatten(0, (B, len(x) // max(B, 1))), projected)  # (B, K, d_s)
        return self.lstm.step(torch.cat([x, z.flatten(0, 1)], -1), state, masks=masks)

    def forward(
        self,
        xs: Tensor,
        memory: Tensor,
        memory_lengths: Lengths | None = None,
        state: State | None = None,
        masks: Masks | None = None,
    ) -> tuple[Tensor, State]:
        """The whole sequence: `step` by `step` if literal or compiled, else `attentive_loop`.

        Args:
            xs: (B, T, d_x), T >= 1.
            memory: (B, L, d_s).
            memory_lengths: (B,) valid rows, or (B, L) True where valid; all if None.
            state: before the first step; zeros if None.
            masks: (T, B, d) each; those of ``lstm.masks`` if None.

        Returns:
            h of every step (B, T, d) and the last state.

        Raises:
            ValueError: xs are not (B, T, d_x) or without steps; a memory that does not fit; the
                implementation is "library".
        """
        check_tokens(xs, self.input_size, "xs")
        B, T, _ = xs.shape
        if not T:
            raise ValueError(f"xs has shape {tuple(xs.shape)}, expected at least 1 step")
        lstm, steps = self.lstm, xs.transpose(0, 1)  # (T, B, d_x)
        state = lstm.zero_state(B) if state is None else state
        masks = lstm.masks(T, B) if masks is None else masks
        self.check(lstm.implementation)
        if lstm.implementation == "literal" or torch.compiler.is_compiling():
            projected, hs = self.attention.project(memory, memory_lengths), []
            for t, x in enumerate(steps):
                state = self.step(x, state, projected, masks.at(t))
                hs.append(state.h)
            return torch.stack(hs, 1), state
        with torch.autocast(xs.device.type, enabled=False):
            dtype, attention = lstm.weight_h.dtype, self.attention
            projected = attention.project(memory.to(dtype), memory_lengths)
            W_x, W_z = lstm.weight_x.split([self.input_size, memory.shape[-1]], -1)
            states, state = attentive_loop(
                F.linear(steps.to(dtype), W_x, lstm.bias),
                projected.memory,
                projected.keys,
                projected.mask,
                attention.query.weight,
                attention.score.weight[0],
                W_z,
                lstm.weight_h,
                state,
                masks,
                lstm.squash,
            )
        return states.transpose(0, 1), state

    @staticmethod
    def check(implementation: str) -> None:
        """Raise ValueError if the implementation cannot attend."""
        if implementation == "library":
            raise ValueError("the library's LSTM does not attend, expected another implementation")
