"""Decoding one token at a time: what earlier tokens left behind is kept, never computed again.

Exact: every step gives what a pass over the whole prefix gives at its last token, because no layer
of a decoder lets a token see later ones. What an image gives to cross-attention is projected once,
its hypotheses side by side on the query axis.

The hypotheses of an image are a tree: its nodes are the tokens that were read, K a step, and a
hypothesis is the path to one of the last K. What a node leaves behind stays where it was written;
to reorder hypotheses is to reorder their paths.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_impl.attention import Attention, multi_head
from torch_impl.expansion import DynamicExpansion, normalise, positive
from torch_impl.padding import Lengths, padding_mask
from torch_impl.transformer import DecoderLayer

if TYPE_CHECKING:
    from torch_impl.models import Captioner


class Incremental:
    """Hypotheses of a batch of images that grow by a token a step.

    Dropout and gradients have no place here: the model must be in evaluation mode.

    Args:
        model: the captioner.
        memory: (B, L, d), of ``model.encode``.
        memory_lengths: (B,) valid rows, or (B, L) True where valid; all if None.
        copies: K, the hypotheses of each image.
        max_length: how many tokens a hypothesis can have; the model's if None.

    Raises:
        ValueError: the model is in training mode, lengths do not fit the memory, copies or
            max_length below 1, or max_length more than the model's.
    """

    def __init__(
        self,
        model: Captioner,
        memory: Tensor,
        memory_lengths: Lengths | None = None,
        copies: int = 1,
        max_length: int | None = None,
    ) -> None:
        if model.training:
            raise ValueError("incremental decoding has no dropout, expected model.eval()")
        positive(copies, "copies")
        self.max_length = positive(
            model.max_length if max_length is None else max_length, "max_length"
        )
        if self.max_length > model.max_length:
            raise ValueError(f"max_length is {max_length}, the model's is {model.max_length}")
        self.model, self.copies = model, copies
        mask = padding_mask(memory_lengths, memory)
        layers = cast(Iterable[DecoderLayer], model.decoder.layers)
        self._layers = [_Layer(layer, memory, mask, copies, self.max_length) for layer in layers]
        self._path = torch.empty(len(memory), copies, 0, dtype=torch.int64, device=memory.device)
        self._places = torch.arange(copies, device=memory.device).expand(len(memory), copies)

    @property
    def length(self) -> int:
        """How many tokens of each hypothesis were read."""
        return self._path.shape[-1]

    @torch.no_grad()
    def step(self, tokens: Tensor) -> Tensor:
        """The next token of each hypothesis (B, K) to log p of the one after it, (B, K, V).

        Raises:
            ValueError: tokens are not (B, K), or max_length tokens were read already.
            IndexError: a token id outside the vocabulary.
        """
        model, t = self.model, self.length
        if tokens.shape != self._places.shape:
            raise ValueError(
                f"tokens has shape {tuple(tokens.shape)}, expected {tuple(self._places.shape)}"
            )
        if t == self.max_length:
            raise ValueError(f"{t} tokens were read, as many as max_length")
        words = model.embedding(tokens) * model.configuration.d_model**0.5
        outputs = [words + model.positions.weight[t]]
        self._path = torch.cat([self._path, (self._places + t * self.copies)[..., None]], -1)
        for layer in self._layers:
            outputs.append(layer.step(outputs[-1], self._path))
        logits = _linear(model.decoder.close(outputs[1:]), model.vocabulary)
        return F.log_softmax(logits, -1, dtype=torch.promote_types(logits.dtype, torch.float32))

    def reorder(self, hypotheses: Tensor) -> None:
        """Let hypothesis k of image b go on from its present hypothesis ``hypotheses[b, k]``."""
        self._path = self._path.gather(1, hypotheses[..., None].expand_as(self._path))


FEW_ROWS = 8
"""Up to so many rows, a CPU's BLAS multiplies a tall matrix faster with it on the left."""


def _linear(x: Tensor, linear: nn.Linear) -> Tensor:
    """``linear(x)`` of hypotheses (B, K, d), which are few."""
    B, K, d = x.shape
    if B * K > FEW_ROWS or not x.is_cpu:
        out: Tensor = linear(x)
        return out
    columns = torch.addmm(linear.bias.unsqueeze(1), linear.weight, x.view(B * K, d).mT)
    return columns.mT.contiguous().view(B, K, linear.out_features)


class _Layer:
    """A decoder layer at work: its past, and the memory as its cross-attention reads it."""

    def __init__(
        self, layer: DecoderLayer, memory: Tensor, mask: Tensor | None, copies: int, max_length: int
    ) -> None:
        self.layer = layer
        self.mask = mask
        self.keys, self.values = layer.cross_attention.project(memory, mask)
        mixer: nn.Module = layer.mixer
        self.past: _Past
        if isinstance(mixer, DynamicExpansion):
            self.past = _ExpansionPast(mixer, len(memory), copies, max_length)
        else:
            assert isinstance(mixer, Attention)
            self.past = _AttentionPast(mixer, len(memory), copies * max_length)

    def step(self, x: Tensor, path: Tensor) -> Tensor:
        """The newest token of every hypothesis, (B, K, d) to (B, K, d)."""
        layer = self.layer
        x = x + self.past.mix(layer.norm_1(x), path)
        x = x + _attend(layer.cross_attention, layer.norm_2(x), self.keys, self.values, self.mask)
        if layer.has_feed_forward:
            feed_forward = layer.feed_forward
            hidden = _linear(layer.norm_3(x), feed_forward.linear_1).relu()
            x = x + feed_forward.linear_2(hidden)
        return x


def _attend(
    attention: Attention, x: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None
) -> Tensor:
    Q = _linear(x, attention.query)
    return attention.close(multi_head(Q, keys, values, attention.num_heads, mask), Q)


class _Past(Protocol):
    def mix(self, x: Tensor, path: Tensor) -> Tensor:
        """What the layer's mixer makes of the tokens x (B, K, d), the last of ``path`` (B, K, t).

        They are the next K nodes.
        """


class _AttentionPast:
    """Keys and values of the nodes, (B, nodes, d)."""

    def __init__(self, attention: Attention, batch: int, nodes: int) -> None:
        self.attention = attention
        shape = batch, nodes, attention.d_model
        self.keys, self.values = attention.key.weight.new_empty(2, *shape)

    def mix(self, x: Tensor, path: Tensor) -> Tensor:
        nodes, K = path.shape[-1] * x.shape[1], x.shape[1]
        attention, new = self.attention, slice(nodes - K, nodes)
        self.keys[:, new] = _linear(x, attention.key)
        self.values[:, new] = _linear(x, attention.value)
        mask = path.new_zeros(*x.shape[:2], nodes, dtype=torch.bool).scatter_(-1, path, True)
        return _attend(attention, x, self.keys[:, :nodes], self.values[:, :nodes], mask)


class _ExpansionPast:
    """Keys, conditions and values of the nodes, and how their expanded rows gather.

    Row (j, n) of M is a sum of c_j k_i and q_n k_i. Of each node j: P, its q_n k_j (B, nodes, N_E);
    and R, the forward weights of its rows in both streams, (B, 2, nodes, N_E, max_length), for the
    tokens on the path to it.
    """

    def __init__(
        self, expansion: DynamicExpansion, batch: int, copies: int, max_length: int
    ) -> None:
        self.expansion = expansion
        weight, N_E, nodes = expansion.key.weight, expansion.num_expansions, copies * max_length
        self.precise = torch.promote_types(weight.dtype, torch.float32)
        self.scale = expansion.d_model**-0.5
        self.query_vectors = expansion.query_vectors.to(self.precise).mT * self.scale
        # keys and conditions; values of both streams
        self.KC, self.V = weight.new_empty(2, batch, 2, nodes, expansion.d_model)
        self.P = weight.new_empty(batch, nodes, N_E, dtype=self.precise)
        self.R = weight.new_zeros(batch, 2, nodes, N_E, max_length, dtype=self.precise)

    def mix(self, x: Tensor, path: Tensor) -> Tensor:
        e = self.expansion
        (B, K, t), N_E = path.shape, e.num_expansions
        nodes = t * K
        new = slice(nodes - K, nodes)
        key, condition = _linear(x, e.key), _linear(x, e.condition)
        self.KC[:, 0, new], self.KC[:, 1, new] = key, condition
        self.V[:, 0, new], self.V[:, 1, new] = _linear(x, e.value_1), _linear(x, e.value_2)
        KC, V, R = self.KC[:, :, :nodes], self.V[:, :, :nodes], self.R[:, :, :nodes, :, :t]
        onto = path[:, None].expand(B, 2, K, t)
        with torch.autocast(x.device.type, enabled=False):
            p = key.to(self.precise) @ self.query_vectors
            self.P[:, new] = p
            P = self.P.gather(1, path.view(B, K * t, 1).expand(B, K * t, N_E)).view(B, K, t, N_E)
            # what the new rows see of the tokens on their path, and what rows there see of the new
            new_to_old = torch.stack([condition, key], 1).to(self.precise) * self.scale
            A = (new_to_old @ KC.to(self.precise).mT).gather(3, onto)[..., None]
            M = torch.stack([A[:, 0] + P, A[:, 1] + p[:, :, None]])
            seeing, seen = torch.stack([M, -M], 2).relu_()
            self.R[:, :, new, :, :t] = normalise(seeing.mT)
            R_bw = normalise(seen.flatten(3)).view(B, 2, K, t, N_E)
            # onto the nodes
            by_node = R_bw.new_zeros(B, 2, K, nodes, N_E)
            by_node.scatter_(3, onto[..., None].expand_as(R_bw), R_bw)
            W = by_node.flatten(3) @ R.flatten(2, 3)
            W = W.new_zeros(B, 2, K, nodes).scatter_(3, onto, W)
        biases = by_node.sum(-1).flatten(1, 2).to(V.dtype) @ KC[:, 1]
        biases = biases.view(B, 2, K, x.shape[-1]) + R_bw.sum(3).to(V.dtype) @ e.bias_vectors
        streams = W.to(V.dtype) @ V + biases
        gate = _linear(x, e.selector).sigmoid()
        return gate * streams[:, 0] + (1 - gate) * streams[:, 1]
