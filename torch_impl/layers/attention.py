"""Multi-head dot-product attention (v1 equation 2) and the Attention on Attention gate, batched."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

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


def multi_head(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    num_heads: int,
    mask: Tensor | None = None,
    causal: bool = False,
) -> Tensor:
    """softmax(Q K^T / sqrt(d_k)) V in every head, d_k = d / num_heads, heads concatenated.

    Args:
        queries: (B, T, d).
        keys: (B, L, d).
        values: (B, L, d).
        num_heads: divides d.
        mask: (B, L) or, of each query, (B, T, L) booleans, True for valid keys; padded keys and
            values must be finite.
        causal: query t sees keys i <= t only.

    Returns:
        (B, T, d); zeros for a query without a valid key.
    """
    Q, K, V = (
        x.reshape(*x.shape[:2], num_heads, x.shape[2] // num_heads).transpose(1, 2)
        for x in (queries, keys, values)
    )  # (B, H, T, d_k), (B, H, L, d_k)
    if mask is None:
        context = F.scaled_dot_product_attention(Q, K, V, is_causal=causal)
    else:
        visible = (mask[:, None] if mask.dim() == 2 else mask)[:, None]  # (B, 1, T or 1, L)
        if causal:
            square = torch.ones(Q.shape[2], K.shape[2], dtype=torch.bool, device=Q.device)
            visible = visible & square.tril()
        # a softmax over no keys is NaN in some kernels: attend to all of them, then zero the result
        blind = ~visible.any(-1, keepdim=True)
        context = F.scaled_dot_product_attention(Q, K, V, attn_mask=visible | blind)
        context = context.masked_fill(blind, 0)  # (B, H, T, d_k)
    return context.transpose(1, 2).flatten(2)


def attention_weights(
    queries: Tensor,
    keys: Tensor,
    num_heads: int,
    mask: Tensor | None = None,
    causal: bool = False,
) -> Tensor:
    """The weights of `multi_head`, its output on one-hot values (v1 equation 2).

    Returns:
        (B, num_heads, T, L), 0 at padded keys; zeros for a query without a valid key.
    """
    B, L, _ = keys.shape
    one_hot = torch.eye(L, dtype=keys.dtype, device=keys.device).repeat(1, num_heads)  # (L, H L)
    weights = multi_head(queries, keys, one_hot.expand(B, -1, -1), num_heads, mask, causal)
    return weights.unflatten(2, (num_heads, L)).transpose(1, 2)


def bias_of_keys(bias: Tensor) -> Tensor:
    """``bias``, with a gradient of 0.

    It shifts all scores of a query equally, which a softmax ignores. Backpropagation would give
    rounding errors, which Adam, dividing by the gradient's size, would turn into steps.
    """
    return bias.detach() + 0 * bias


def _check_heads(d_model: int, num_heads: int) -> None:
    positive(d_model, "d_model")
    if d_model % positive(num_heads, "num_heads"):
        raise ValueError(f"d_model {d_model} is not divisible by num_heads {num_heads}")


class Attention(nn.Module, ABC):
    """Base class of both forms of attention: projections and masks.

    Raises:
        ValueError: d_model is not divisible by num_heads, or one of them is below 1.
    """

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        _check_heads(d_model, num_heads)
        self.d_model, self.num_heads = d_model, num_heads
        self.query = nn.Linear(d_model, d_model)
        self.key = nn.Linear(d_model, d_model)
        self.value = nn.Linear(d_model, d_model)

    def forward(
        self,
        queries: Tensor,
        keys_values: Tensor,
        lengths: Lengths | None = None,
        causal: bool = False,
        image_index: Tensor | None = None,
    ) -> Tensor:
        """Attend from ``queries`` (B, T, d) to ``keys_values`` (B, L, d), valid up to ``lengths``.

        With ``image_index`` (B,), queries b attend to row ``image_index[b]`` of keys and values,
        which are projected once for all that share them.

        Raises:
            ValueError: a shape is not (B, ., d_model) or the lengths do not fit ``keys_values``.
        """
        check_tokens(queries, self.d_model, "queries")
        check_tokens(keys_values, self.d_model, "keys_values")
        mask = padding_mask(lengths, keys_values)
        keys, values = self.project(keys_values, mask)
        if image_index is not None:
            # not keys[image_index], whose gradient adds in no fixed order on several threads
            keys, values = keys.index_select(0, image_index), values.index_select(0, image_index)
            mask = None if mask is None else mask.index_select(0, image_index)
        return self.attend(queries, keys, values, mask, causal)

    def project(self, keys_values: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The keys and values (B, L, d) of tokens (B, L, d); padded ones may be NaN."""
        keys_values = zero_padding(keys_values, mask)
        keys = F.linear(keys_values, self.key.weight, bias_of_keys(self.key.bias))
        return keys, self.value(keys_values)

    def attend(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
    ) -> Tensor:
        """Attend from ``queries`` (B, T, d), not projected yet, to projected keys and values."""
        Q = self.query(queries)
        return self.output(multi_head(Q, keys, values, self.num_heads, mask, causal), Q)

    def weights(
        self,
        queries: Tensor,
        keys_values: Tensor,
        lengths: Lengths | None = None,
        causal: bool = False,
    ) -> Tensor:
        """The attention weights (B, num_heads, T, L) of ``forward`` with these arguments.

        Raises:
            ValueError: as ``forward``.
        """
        check_tokens(queries, self.d_model, "queries")
        check_tokens(keys_values, self.d_model, "keys_values")
        mask = padding_mask(lengths, keys_values)
        keys, _ = self.project(keys_values, mask)
        return attention_weights(self.query(queries), keys, self.num_heads, mask, causal)

    @abstractmethod
    def output(self, V_hat: Tensor, Q: Tensor) -> Tensor:
        """The output (B, T, d) from concatenated heads and projected queries, both (B, T, d)."""


@contextmanager
def record_attention_weights(attention: Attention) -> Iterator[list[Tensor]]:
    """Collect the `Attention.weights` of every call of ``attention`` within the block.

    The calls may not have ``image_index``.
    """
    seen: list[Tensor] = []
    hook = attention.register_forward_pre_hook(
        lambda _, arguments, named: seen.append(
            attention.weights(*arguments, **{n: v for n, v in named.items() if v is not None})
        ),
        with_kwargs=True,
    )
    try:
        yield seen
    finally:
        hook.remove()


class MultiHeadAttention(Attention):
    """Multi-head attention with its four projections; no dropout on the weights (v1 equation 2).

    Raises:
        ValueError: d_model is not divisible by num_heads, or one of them is below 1.
    """

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__(d_model, num_heads)
        self.out = nn.Linear(d_model, d_model)

    def output(self, V_hat: Tensor, Q: Tensor) -> Tensor:
        out: Tensor = self.out(V_hat)
        return out


class AttentionOnAttention(Attention):
    """Multi-head attention with a gate on its result (Huang et al. 2019).

    I * G, where information I and gate G = sigmoid(.) are linear in [V_hat, Q], V_hat being the
    concatenated heads and Q the projected queries.

    Raises:
        ValueError: d_model is not divisible by num_heads, or one of them is below 1.
    """

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__(d_model, num_heads)
        self.information = nn.Linear(2 * d_model, d_model)
        self.gate = nn.Linear(2 * d_model, d_model)

    def output(self, V_hat: Tensor, Q: Tensor) -> Tensor:
        both = torch.cat([V_hat, Q], dim=-1)  # (B, T, 2 d)
        gated: Tensor = self.information(both) * self.gate(both).sigmoid()
        return gated
