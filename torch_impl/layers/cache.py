"""Decoding one token at a time: what earlier tokens left behind is kept, never computed again.

Exact: every step gives what a pass over the whole prefix gives at its last token, because no layer
of a decoder lets a token see later ones. What an image gives to cross-attention is projected once,
its hypotheses side by side on the query axis.

The hypotheses of an image are a tree: its nodes are the tokens that were read, K a step, and a
hypothesis is the path to one of the last K. What a node leaves behind stays where it was written;
to reorder hypotheses is to reorder their paths.

The step itself is ``read``, whatever keeps the nodes: ``Incremental`` makes room for all of them at
the start; an exported step is given them, and gives them back (``export``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_impl.common.checks import check_hypotheses, check_step
from torch_impl.common.padding import Lengths, padding_mask
from torch_impl.expansion import DynamicExpansion, normalise
from torch_impl.layers.attention import Attention, multi_head
from torch_impl.layers.transformer import Decoder, DecoderLayer


class Model(Protocol):
    """A captioner whose decoder can read a token at a time."""

    max_length: int
    decoder: Decoder
    embedding: nn.Embedding
    positions: nn.Embedding
    vocabulary: nn.Linear

    @property
    def draws(self) -> bool:
        """Whether a pass draws at random: in training mode, with dropout."""


class Incremental:
    """Hypotheses of a batch of images that grow by a token a step.

    Dropout and gradients have no place here: a model that has dropout must be in evaluation mode.

    Args:
        model: the captioner.
        memory: (B, L, d), of ``model.encode``.
        memory_lengths: (B,) valid rows, or (B, L) True where valid; all if None.
        copies: K, the hypotheses of each image.
        max_length: how many tokens a hypothesis can have; the model's if None.

    Raises:
        ValueError: the model has dropout now, lengths do not fit the memory, copies or
            max_length below 1, or max_length more than the model's.
    """

    def __init__(
        self,
        model: Model,
        memory: Tensor,
        memory_lengths: Lengths | None = None,
        copies: int = 1,
        max_length: int | None = None,
    ) -> None:
        self.max_length = check_hypotheses(model, copies, max_length, model.max_length)
        self.model, self.copies = model, copies
        mask = padding_mask(memory_lengths, memory)
        self._layers = [
            Layer(
                layer,
                *layer.cross_attention.project(memory, mask),
                mask,
                _rooms(layer.mixer, len(memory), copies, self.max_length),
            )
            for layer in cast(Iterable[DecoderLayer], model.decoder.layers)
        ]
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
        t = self.length
        check_step(tokens, self._places.shape, t, self.max_length)
        path = torch.cat([self._path, (self._places + t * self.copies)[..., None]], -1)
        log_probs = read(self.model, self._layers, tokens, path)
        self._path = path
        return log_probs

    def reorder(self, hypotheses: Tensor) -> None:
        """Let hypothesis k of image b go on from its present hypothesis ``hypotheses[b, k]``."""
        self._path = self._path.gather(1, hypotheses[..., None].expand_as(self._path))


def read(model: Model, layers: Sequence[Layer], tokens: Tensor, path: Tensor) -> Tensor:
    """Tokens (B, K), the last of ``path`` (B, K, t), to log p of those after them, (B, K, V).

    They become the next K nodes of the ``layers``, which are the model's at work.
    """
    words = model.embedding(tokens) * model.embedding.embedding_dim**0.5
    outputs = [words + model.positions.weight[path.shape[-1] - 1]]
    for layer in layers:
        outputs.append(layer.step(outputs[-1], path))
    logits = _linear(model.decoder.close(outputs[1:]), model.vocabulary)
    return F.log_softmax(logits, -1, dtype=torch.promote_types(logits.dtype, torch.float32))


FEW_ROWS = 8
"""Up to so many rows, a CPU's BLAS multiplies a tall matrix faster with it on the left."""


def _linear(x: Tensor, linear: nn.Linear) -> Tensor:
    """``linear(x)`` of hypotheses (B, K, d), which are few."""
    B, K, d = x.shape
    if torch.compiler.is_exporting() or B * K > FEW_ROWS or not x.is_cpu:
        out: Tensor = linear(x)
        return out
    columns = torch.addmm(linear.bias.unsqueeze(1), linear.weight, x.view(B * K, d).mT)
    return columns.mT.contiguous().view(B, K, linear.out_features)


class Rows(Protocol):
    """What the nodes left behind of one kind, see `vacant`."""

    def add(self, rows: Tensor, nodes: int) -> Tensor:
        """The rows of all ``nodes``, the last of which are ``rows``."""


def vacant(mixer: nn.Module, batch: int, nodes: int, max_length: int) -> dict[str, Tensor]:
    """Zeros for all that a mixer keeps of its nodes, by name.

    The nodes' axis is the first after the batch's, or after that of both streams where there are
    more than three.
    """
    if isinstance(mixer, DynamicExpansion):
        weight, N_E = mixer.key.weight, mixer.num_expansions
        precise = torch.promote_types(weight.dtype, torch.float32)
        of_both = weight.new_zeros(2, batch, 2, nodes, mixer.d_model)
        return {
            "KC": of_both[0],
            "V": of_both[1],
            "P": weight.new_zeros(batch, nodes, N_E, dtype=precise),
            "R": weight.new_zeros(batch, 2, nodes, N_E, max_length, dtype=precise),
        }
    assert isinstance(mixer, Attention)
    keys, values = mixer.key.weight.new_zeros(2, batch, nodes, mixer.d_model)
    return {"keys": keys, "values": values}


def node_axis(rows: Tensor) -> int:
    """The nodes' axis of one of the tensors of `vacant`."""
    return 1 if rows.dim() == 3 else 2


class _Room:
    """Room for the rows of all nodes that there will be."""

    def __init__(self, room: Tensor) -> None:
        self._room = room

    def add(self, rows: Tensor, nodes: int) -> Tensor:
        room, axis = self._room[..., : rows.shape[-1]], node_axis(rows)
        room.narrow(axis, nodes - rows.shape[axis], rows.shape[axis]).copy_(rows)
        return room.narrow(axis, 0, nodes)


def _rooms(mixer: nn.Module, batch: int, copies: int, max_length: int) -> dict[str, Rows]:
    rooms = vacant(mixer, batch, copies * max_length, max_length)
    return {name: _Room(room) for name, room in rooms.items()}


class Layer:
    """A decoder layer at work: its past, and the memory as its cross-attention reads it.

    Args:
        layer: the layer.
        keys: (B, L, d), of the memory by the layer's cross-attention.
        values: (B, L, d), likewise.
        mask: (B, L), True for valid rows of the memory; all if None.
        rows: by the names of `vacant`.
    """

    def __init__(
        self,
        layer: DecoderLayer,
        keys: Tensor,
        values: Tensor,
        mask: Tensor | None,
        rows: Mapping[str, Rows],
    ) -> None:
        self.layer, self.keys, self.values, self.mask = layer, keys, values, mask
        mixer: nn.Module = layer.mixer
        self.past: _Past
        if isinstance(mixer, DynamicExpansion):
            self.past = _ExpansionPast(mixer, **rows)
        else:
            assert isinstance(mixer, Attention)
            self.past = _AttentionPast(mixer, **rows)

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

    def __init__(self, attention: Attention, keys: Rows, values: Rows) -> None:
        self.attention, self.keys, self.values = attention, keys, values

    def mix(self, x: Tensor, path: Tensor) -> Tensor:
        attention, nodes = self.attention, path.shape[-1] * x.shape[1]
        keys = self.keys.add(_linear(x, attention.key), nodes)
        values = self.values.add(_linear(x, attention.value), nodes)
        mask = path.new_zeros(*x.shape[:2], nodes, dtype=torch.bool).scatter_(-1, path, True)
        return _attend(attention, x, keys, values, mask)


class _ExpansionPast:
    """Keys and conditions (B, 2, nodes, d), values of both streams likewise, and how rows gather.

    Row (j, n) of M is a sum of c_j k_i and q_n k_i. Of each node j: P, its q_n k_j (B, nodes, N_E);
    and R, the forward weights of its rows in both streams, (B, 2, nodes, N_E, max_length), for the
    tokens on the path to it.
    """

    def __init__(self, expansion: DynamicExpansion, KC: Rows, V: Rows, P: Rows, R: Rows) -> None:
        self.expansion, self.KC, self.V, self.P, self.R = expansion, KC, V, P, R
        self.precise = torch.promote_types(expansion.key.weight.dtype, torch.float32)
        self.scale = expansion.d_model**-0.5
        self.query_vectors = expansion.query_vectors.to(self.precise).mT * self.scale

    def mix(self, x: Tensor, path: Tensor) -> Tensor:
        e = self.expansion
        (B, K, t), N_E = path.shape, e.num_expansions
        nodes = t * K
        key, condition = _linear(x, e.key), _linear(x, e.condition)
        KC = self.KC.add(torch.stack([key, condition], 1), nodes)
        V = self.V.add(torch.stack([_linear(x, e.value_1), _linear(x, e.value_2)], 1), nodes)
        onto = path[:, None].expand(B, 2, K, t)
        with torch.autocast(x.device.type, enabled=False):
            p = key.to(self.precise) @ self.query_vectors
            P = self.P.add(p, nodes)
            P = P.gather(1, path.view(B, K * t, 1).expand(B, K * t, N_E)).view(B, K, t, N_E)
            # what the new rows see of the tokens on their path, and what rows there see of the new
            new_to_old = torch.stack([condition, key], 1).to(self.precise) * self.scale
            A = (new_to_old @ KC.to(self.precise).mT).gather(3, onto)[..., None]
            M = torch.stack([A[:, 0] + P, A[:, 1] + p[:, :, None]])
            seeing, seen = torch.stack([M, -M], 2).relu_()
            R = self.R.add(normalise(seeing.mT), nodes)
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
