"""The KV cache: decoding one token at a time, with the keys and values of earlier tokens stored.

Exact: a step returns what a pass over the whole prefix returns for its last token, because no layer
of a decoder sees later tokens. Cross-attention projects the memory once; an image's K beams share
it, along the query axis.

Each step writes K cache slots, one per beam, which never move. ``ancestry`` (B, K, t) holds the
slots of each beam's t tokens: reordering beams only reorders their ancestries.

`decode_step` works on any `Buffer`: `TransformerCache` preallocates them; an exported step
(``checkpoints.export``) takes them as inputs and returns them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_impl.common.checks import check_cache, check_step
from torch_impl.common.padding import Lengths, padding_mask
from torch_impl.common.precision import at_least_float32, log_probabilities
from torch_impl.common.protocols import IncrementalModel
from torch_impl.expansion import DynamicExpansion, normalise
from torch_impl.layers.attention import Attention, multi_head
from torch_impl.layers.rounded import RoundedLinear
from torch_impl.layers.transformer import Decoder, DecoderLayer


class TransformerModel(IncrementalModel, Protocol):
    """A captioner with a `Decoder`."""

    decoder: Decoder
    embedding: nn.Embedding
    positions: nn.Embedding
    vocabulary: nn.Linear


class TransformerCache:
    """The KV cache of K beams of each image, in preallocated buffers.

    Without dropout and gradients: a model that has dropout must be in evaluation mode.

    Args:
        model: the captioner.
        memory: (B, L, d), from ``model.encode``.
        memory_lengths: (B,) valid rows, or (B, L) True where valid; all if None.
        num_beams: K, the beams of each image.
        max_length: tokens of a beam at most; the model's if None.

    Raises:
        ValueError: the model has dropout in its current mode, lengths do not fit the memory,
            num_beams or max_length below 1, or max_length above the model's.
    """

    def __init__(
        self,
        model: TransformerModel,
        memory: Tensor,
        memory_lengths: Lengths | None = None,
        num_beams: int = 1,
        max_length: int | None = None,
    ) -> None:
        self.max_length = check_cache(model.is_stochastic, num_beams, max_length, model.max_length)
        self.model, self.num_beams = model, num_beams
        mask, (B, *_) = padding_mask(memory_lengths, memory), memory.shape
        self._layers = []
        for layer in cast(Iterable[DecoderLayer], model.decoder.layers):
            cache = init_cache(layer.mixer, B, num_beams * self.max_length, self.max_length)
            buffers = {name: _Preallocated(x) for name, x in cache.items()}
            keys, values = layer.cross_attention.project(memory, mask)
            self._layers.append(CachedLayer(layer, keys, values, mask, buffers))
        self._ancestry = torch.empty(B, num_beams, 0, dtype=torch.int64, device=memory.device)
        self._beams = torch.arange(num_beams, device=memory.device).expand(B, num_beams)

    @property
    def length(self) -> int:
        """The number of tokens read of each beam."""
        return self._ancestry.shape[-1]

    @torch.no_grad()
    def step(self, tokens: Tensor) -> Tensor:
        """The next token of each beam (B, K) to log p of the one after it, (B, K, V).

        Raises:
            ValueError: tokens are not (B, K), or max_length tokens were read already.
            IndexError: a token id outside the vocabulary.
        """
        check_step(tokens, self._beams.shape, self.length, self.max_length)
        slots = self._beams + self.length * self.num_beams  # (B, K)
        ancestry = torch.cat([self._ancestry, slots[..., None]], -1)  # (B, K, t)
        log_probs = decode_step(self.model, self._layers, tokens, ancestry)
        self._ancestry = ancestry
        return log_probs

    def reorder(self, beams: Tensor) -> None:
        """Replace beam k of image b by its beam ``beams[b, k]``."""
        self._ancestry = self._ancestry.gather(1, beams[..., None].expand_as(self._ancestry))


def decode_step(
    model: TransformerModel, layers: Sequence[CachedLayer], tokens: Tensor, ancestry: Tensor
) -> Tensor:
    """Tokens (B, K), the last of ``ancestry`` (B, K, t), to log p of the next, (B, K, V)."""
    words = model.embedding(tokens) * model.embedding.embedding_dim**0.5  # (B, K, d)
    outputs = [words + model.positions.weight[ancestry.shape[-1] - 1]]
    for layer in layers:
        outputs.append(layer.step(outputs[-1], ancestry))
    return log_probabilities(_linear(model.decoder.combine(outputs[1:]), model.vocabulary))


FEW_ROWS, OUTPUTS = 12, 64
"""Up to so many rows, a CPU's BLAS is faster by products of so many outputs: for one large product
it first copies the whole weight matrix into another order."""


def _linear(x: Tensor, linear: nn.Linear) -> Tensor:
    """``linear(x)`` for x (B, K, d) of few rows."""
    (B, K, d), count = x.shape, linear.out_features // OUTPUTS
    plain = type(linear) is nn.Linear  # another has a product of its own
    if torch.compiler.is_exporting() or not (x.is_cpu and plain and count and B * K <= FEW_ROWS):
        out: Tensor = linear(x)
        return out
    whole = count * OUTPUTS
    weights = linear.weight[:whole].view(count, OUTPUTS, d)
    biases = linear.bias[:whole].view(count, 1, OUTPUTS)
    parts = torch.baddbmm(biases, x.view(1, B * K, d).expand(count, -1, -1), weights.mT)
    out = parts.transpose(0, 1).reshape(B, K, whole)
    if whole == linear.out_features:
        return out
    return torch.cat([out, F.linear(x, linear.weight[whole:], linear.bias[whole:])], -1)


def _joined(*linears: nn.Linear) -> Callable[[Tensor], Tensor]:
    """Concatenate the outputs of layers with the same input; rounded ones are one product."""
    first, *others = linears
    if isinstance(first, RoundedLinear):
        return first.joined(*cast(Sequence[RoundedLinear], others))
    return lambda x: torch.cat([_linear(x, linear) for linear in linears], -1)


class Buffer(Protocol):
    """A tensor of `init_cache`, filled step by step."""

    def append(self, rows: Tensor, slots: int) -> Tensor:
        """Write ``rows`` to the last of the first ``slots`` slots, and return these slots."""


def init_cache(mixer: nn.Module, batch: int, slots: int, max_length: int) -> dict[str, Tensor]:
    """A mixer's cache of zeros, by name: the tensors of `_AttentionCache` or `_ExpansionCache`."""
    if isinstance(mixer, DynamicExpansion):
        weight, N_E = mixer.key.weight, mixer.num_expansions
        precise = at_least_float32(weight.dtype)
        KC, V = weight.new_zeros(2, batch, 2, slots, mixer.d_model)
        P = weight.new_zeros(batch, slots, N_E, dtype=precise)
        R = weight.new_zeros(batch, 2, slots, N_E, max_length, dtype=precise)
        return {"KC": KC, "V": V, "P": P, "R": R}
    assert isinstance(mixer, Attention)
    keys, values = mixer.key.weight.new_zeros(2, batch, slots, mixer.d_model)
    return {"keys": keys, "values": values}


def slot_axis(x: Tensor) -> int:
    """The slots' axis of a tensor of `init_cache`: after the batch, or after an axis of two."""
    return 1 if x.dim() == 3 else 2


class _Preallocated:
    def __init__(self, buffer: Tensor) -> None:
        self._buffer = buffer

    def append(self, rows: Tensor, slots: int) -> Tensor:
        buffer, axis = self._buffer[..., : rows.shape[-1]], slot_axis(rows)
        buffer.narrow(axis, slots - rows.shape[axis], rows.shape[axis]).copy_(rows)
        return buffer.narrow(axis, 0, slots)


class CachedLayer:
    """A decoder layer and its cache.

    Args:
        layer: the layer.
        keys: (B, L, d), the memory's keys for cross-attention.
        values: (B, L, d), the memory's values for cross-attention.
        mask: (B, L), True for valid rows of the memory; all if None.
        cache: the mixer's buffers, by the names of `init_cache`.
    """

    def __init__(
        self,
        layer: DecoderLayer,
        keys: Tensor,
        values: Tensor,
        mask: Tensor | None,
        cache: Mapping[str, Buffer],
    ) -> None:
        self.layer, self.keys, self.values, self.mask = layer, keys, values, mask
        mixer: nn.Module = layer.mixer
        self.cache: _AttentionCache | _ExpansionCache
        if isinstance(mixer, DynamicExpansion):
            self.cache = _ExpansionCache(mixer, **cache)
        else:
            assert isinstance(mixer, Attention)
            self.cache = _AttentionCache(mixer, **cache)

    def step(self, x: Tensor, ancestry: Tensor) -> Tensor:
        """The newest token of every beam, (B, K, d) to (B, K, d)."""
        layer = self.layer
        x = x + self.cache.mix(layer.norm_1(x), ancestry)
        Q = _linear(layer.norm_2(x), layer.cross_attention.query)
        x = x + _attend(layer.cross_attention, Q, self.keys, self.values, self.mask)
        if layer.has_feed_forward:
            feed_forward = layer.feed_forward
            hidden = _linear(layer.norm_3(x), feed_forward.linear_1).relu()  # (B, K, d_ff)
            x = x + _linear(hidden, feed_forward.linear_2)
        return x


def _attend(
    attention: Attention, Q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None
) -> Tensor:
    return attention.output(multi_head(Q, keys, values, attention.num_heads, mask), Q)


class _AttentionCache:
    """Keys and values, (B, slots, d)."""

    def __init__(self, attention: Attention, keys: Buffer, values: Buffer) -> None:
        self.attention, self.keys, self.values = attention, keys, values
        self._project = _joined(attention.query, attention.key, attention.value)

    def mix(self, x: Tensor, ancestry: Tensor) -> Tensor:
        """Self-attention of the tokens x (B, K, d), the last of ``ancestry`` (B, K, t)."""
        attention, (B, K, t) = self.attention, ancestry.shape
        Q, key, value = self._project(x).chunk(3, -1)  # (B, K, d)
        keys = self.keys.append(key, t * K)  # (B, t K, d)
        values = self.values.append(value, t * K)
        mask = ancestry.new_zeros(B, K, t * K, dtype=torch.bool).scatter_(-1, ancestry, True)
        return _attend(attention, Q, keys, values, mask)


class _ExpansionCache:
    """KC, the keys and conditions, and V, both streams' values, (B, 2, slots, d) each; P and R.

    Row (j, n) of M is (c_j + q_n) k_i / sqrt(d). P (B, slots, N_E) is q_n k_j / sqrt(d) of each
    slot j; R (B, 2, slots, N_E, max_length) both streams' R_fw of its rows over its ancestry.
    """

    def __init__(
        self, expansion: DynamicExpansion, KC: Buffer, V: Buffer, P: Buffer, R: Buffer
    ) -> None:
        self.expansion, self.KC, self.V, self.P, self.R = expansion, KC, V, P, R
        self.precise = at_least_float32(expansion.key.weight.dtype)
        self.scale = expansion.d_model**-0.5
        self._project = _joined(
            *(expansion.key, expansion.condition),
            *(expansion.value_1, expansion.value_2, expansion.selector),
        )
        self.query_vectors = expansion.query_vectors.to(self.precise).mT * self.scale  # (d, N_E)

    def mix(self, x: Tensor, ancestry: Tensor) -> Tensor:
        """The expansion of the tokens x (B, K, d), the last of ``ancestry`` (B, K, t)."""
        e = self.expansion
        (B, K, t), N_E = ancestry.shape, e.num_expansions
        slots = t * K
        projected = self._project(x).view(B, K, 5, x.shape[-1]).transpose(1, 2)  # (B, 5, K, d)
        KC = self.KC.append(projected[:, :2], slots)  # (B, 2, slots, d)
        V = self.V.append(projected[:, 2:4], slots)  # (B, 2, slots, d)
        index = ancestry[:, None].expand(B, 2, K, t)
        with torch.autocast(x.device.type, enabled=False):
            p = projected[:, 0].to(self.precise) @ self.query_vectors  # (B, K, N_E)
            P = self.P.append(p, slots)  # (B, slots, N_E)
            P = P.gather(1, ancestry.view(B, slots, 1).expand(B, slots, N_E)).view(B, K, t, N_E)
            # M of the new rows over their ancestry; of the ancestry's rows over the new token
            new = projected[:, :2].flip(1).to(self.precise) * self.scale  # (B, 2, K, d)
            A = (new @ KC.to(self.precise).mT).gather(3, index)[..., None]  # (B, 2, K, t, 1)
            M = torch.stack([A[:, 0] + P, A[:, 1] + p[:, :, None]])  # (2, B, K, t, N_E)
            M_fw, M_bw = torch.stack([M, -M], 2).relu_()  # (B, 2, K, t, N_E), by stream
            R = self.R.append(normalise(M_fw.mT), slots)  # (B, 2, slots, N_E, t)
            R_bw = normalise(M_bw.flatten(3)).view(B, 2, K, t, N_E)
            by_slot = R_bw.new_zeros(B, 2, K, slots, N_E)
            by_slot.scatter_(3, index[..., None].expand_as(R_bw), R_bw)
            W = by_slot.flatten(3) @ R.flatten(2, 3)  # (B, 2, K, t)
            W = W.new_zeros(B, 2, K, slots).scatter_(3, index, W)
        biases = by_slot.sum(-1).flatten(1, 2).to(V.dtype) @ KC[:, 1]  # (B, 2 K, d)
        biases = biases.view(B, 2, K, x.shape[-1]) + R_bw.sum(3).to(V.dtype) @ e.bias_vectors
        streams = W.to(V.dtype) @ V + biases  # (B, 2, K, d)
        gate = projected[:, 4].sigmoid()
        return gate * streams[:, 0] + (1 - gate) * streams[:, 1]
