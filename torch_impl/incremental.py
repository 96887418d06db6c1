"""Decoding one token at a time: what earlier tokens left behind is kept, never computed again.

Exact: every step gives what a pass over the whole prefix gives at its last token, because no layer
of a decoder lets a token see later ones. What an image gives to cross-attention is projected once,
its hypotheses side by side on the query axis.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_impl.attention import Attention
from torch_impl.expansion import DynamicExpansion, length_transformation, normalise
from torch_impl.padding import Lengths, padding_mask
from torch_impl.transformer import DecoderLayer

if TYPE_CHECKING:
    from torch_impl.models import Captioner


class Incremental:
    """Hypotheses of a batch of images that grow by a token a step, up to the model's max_length.

    Dropout and gradients have no place here: the model must be in evaluation mode.

    Args:
        model: the captioner.
        memory: (B, L, d), of ``model.encode``.
        memory_lengths: (B,) valid rows, or (B, L) True where valid; all if None.
        copies: K, the hypotheses of each image.

    Raises:
        ValueError: the model is in training mode, or lengths do not fit the memory.
    """

    def __init__(
        self,
        model: Captioner,
        memory: Tensor,
        memory_lengths: Lengths | None = None,
        copies: int = 1,
    ) -> None:
        if model.training:
            raise ValueError("incremental decoding has no dropout, expected model.eval()")
        self.model, self.copies, self.length = model, copies, 0
        rows = len(memory) * copies
        mask = padding_mask(memory_lengths, memory)
        layers = cast(Iterable[DecoderLayer], model.decoder.layers)
        self._layers = [_Layer(layer, memory, mask, rows, model.max_length) for layer in layers]

    @torch.no_grad()
    def step(self, tokens: Tensor) -> Tensor:
        """The next token of each hypothesis (B, K) to log p of the one after it, (B, K, V).

        Raises:
            ValueError: tokens are not (B, K), or max_length tokens were read already.
        """
        model = self.model
        if tokens.dim() != 2 or tokens.shape[1] != self.copies:
            raise ValueError(f"tokens has shape {tuple(tokens.shape)}, expected (B, {self.copies})")
        if self.length == model.max_length:
            raise ValueError(f"{self.length} tokens were read, as many as max_length")
        words = model.embedding(tokens.reshape(-1, 1)) * model.configuration.d_model**0.5
        outputs = [words + model.positions.weight[self.length]]
        for layer in self._layers:
            outputs.append(layer.step(outputs[-1], self.length))
        self.length += 1
        logits = model.vocabulary(model.decoder.close(outputs[1:])).view(*tokens.shape, -1)
        return F.log_softmax(logits, -1, dtype=torch.promote_types(logits.dtype, torch.float32))

    def reorder(self, hypotheses: Tensor) -> None:
        """Let hypothesis k of image b go on from its present hypothesis ``hypotheses[b, k]``."""
        images = torch.arange(len(hypotheses), device=hypotheses.device)
        rows = (hypotheses + self.copies * images[:, None]).flatten()
        for layer in self._layers:
            layer.past.reorder(rows, self.length)


class _Layer:
    """A decoder layer at work: its past, and the memory as its cross-attention reads it."""

    def __init__(
        self, layer: DecoderLayer, memory: Tensor, mask: Tensor | None, rows: int, max_length: int
    ) -> None:
        self.layer, self.mask = layer, mask
        self.keys, self.values = layer.cross_attention.project(memory, mask)
        mixer: nn.Module = layer.mixer
        self.past: _Past
        if isinstance(mixer, DynamicExpansion):
            self.past = _ExpansionPast(mixer, rows, max_length)
        else:
            assert isinstance(mixer, Attention)
            self.past = _AttentionPast(mixer, rows, max_length)

    def step(self, x: Tensor, t: int) -> Tensor:
        """Token ``t`` of every hypothesis, (B K, 1, d) to (B K, 1, d)."""
        layer = self.layer
        x = x + self.past.mix(layer.norm_1(x), t)
        queries = layer.norm_2(x).view(len(self.keys), -1, x.shape[-1])
        x = x + layer.cross_attention.attend(queries, self.keys, self.values, self.mask).view_as(x)
        if layer.has_feed_forward:
            x = x + layer.feed_forward(layer.norm_3(x))
        return x


class _Past(Protocol):
    def mix(self, x: Tensor, t: int) -> Tensor:
        """What the layer's mixer makes of token ``t``, (B K, 1, d)."""

    def reorder(self, rows: Tensor, length: int) -> None:
        """Keep the pasts ``rows``, of ``length`` tokens, in that order."""


class _AttentionPast:
    """Keys and values, (B K, max_length, d)."""

    def __init__(self, attention: Attention, rows: int, max_length: int) -> None:
        self.attention = attention
        shape = rows, max_length, attention.d_model
        self.keys, self.values = attention.key.weight.new_zeros(2, *shape)

    def mix(self, x: Tensor, t: int) -> Tensor:
        key, value = self.attention.project(x)
        self.keys[:, t : t + 1], self.values[:, t : t + 1] = key, value
        return self.attention.attend(x, self.keys[:, : t + 1], self.values[:, : t + 1])

    def reorder(self, rows: Tensor, length: int) -> None:
        for x in (self.keys, self.values):
            x[:, :length] = x[rows, :length]


class _ExpansionPast:
    """Conditions, keys and values of the tokens, and how their expanded rows gather.

    Row (j, n) of M is a sum of c_j k_i and q_n k_i. The streams' forward weights have disjoint
    support, so that their difference R, (B K, max_length, N_E, max_length), holds both.
    """

    def __init__(self, expansion: DynamicExpansion, rows: int, max_length: int) -> None:
        self.expansion = expansion
        weight, N_E = expansion.key.weight, expansion.num_expansions
        shape = rows, max_length, expansion.d_model
        self.C, self.K, self.V_1, self.V_2 = weight.new_zeros(4, *shape)
        precise = weight.new_zeros(0).to(torch.promote_types(weight.dtype, torch.float32))
        self.P = precise.new_zeros(rows, N_E, max_length)
        self.R = precise.new_zeros(rows, max_length, N_E, max_length)

    def mix(self, x: Tensor, t: int) -> Tensor:
        e, past = self.expansion, slice(t + 1)
        condition, key = e.condition(x), e.key(x)
        for kept, new in (
            (self.C, condition),
            (self.K, key),
            (self.V_1, e.value_1(x)),
            (self.V_2, e.value_2(x)),
        ):
            kept[:, t : t + 1] = new
        self.P[:, :, t : t + 1] = length_transformation(e.query_vectors, key)
        C, b = self.C[:, past], e.bias_vectors
        # what the new rows see of all tokens, and what all rows see of the new token
        seeing = length_transformation(condition, self.K[:, past]) + self.P[:, :, past]
        seen = length_transformation(C, key) + self.P[:, None, :, t]
        self.R[:, t, :, past] = normalise(seeing.relu()) - normalise((-seeing).relu())
        R = self.R[:, past, :, past].flatten(1, 2)
        backward = []
        for sign, V in ((1, self.V_1), (-1, self.V_2)):
            R_bw = normalise((sign * seen).relu().flatten(1)[:, None])
            W = R_bw @ (sign * R).relu()
            by_row = R_bw.view(len(x), t + 1, -1).to(V.dtype)
            biases = by_row.sum(-1)[:, None] @ C + by_row.sum(-2)[:, None] @ b
            backward.append(W.to(V.dtype) @ V[:, past] + biases)
        gate = e.selector(x).sigmoid()
        return gate * backward[0] + (1 - gate) * backward[1]

    def reorder(self, rows: Tensor, length: int) -> None:
        for x in (self.C, self.K, self.V_1, self.V_2):
            x[:, :length] = x[rows, :length]
        self.P[..., :length] = self.P[rows, :, :length]
        self.R[:, :length, :, :length] = self.R[rows, :length, :, :length]
