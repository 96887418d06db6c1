"""Dropout while self-critical training samples: as run, with shared masks, or off.

As run, each token is sampled under new dropout masks, by a pass over the whole prefix, and its
log-probability has other masks again. `SharedMasks` draws a sample's masks once, by layer and
position: tokens are decoded incrementally, and the log-probability that is trained has the masks of
the sampling. `WithoutDropout` samples in evaluation mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_impl.common.checks import check_step
from torch_impl.common.dropout import keep_mask, keep_scale
from torch_impl.common.padding import Lengths, padding_mask
from torch_impl.common.precision import at_least_float32
from torch_impl.common.protocols import DecoderCache
from torch_impl.expansion import DynamicExpansion, normalise
from torch_impl.expansion.functional import choose
from torch_impl.layers.attention import Attention, multi_head
from torch_impl.layers.transformer import DecoderLayer
from torch_impl.models import BaseCaptioner, Captioner, EndToEnd
from torch_impl.training.computation import Computation
from torch_impl.training.scheduled_sampling import _evaluating


@dataclass(frozen=True)
class SamplingComputation(Computation):
    """A computation with the ``sampling`` of self-critical steps, a name in ``SAMPLINGS``.

    Raises:
        ValueError: as ``Computation``; an unknown ``sampling``; "shared" with ``compile``, whose
            dropout masks cannot be drawn twice.
    """

    sampling: str = "as-run"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sampling not in SAMPLINGS:
            known = " or ".join(SAMPLINGS)
            raise ValueError(f"sampling is {self.sampling!r}, expected {known}")
        if self.sampling == "shared" and self.compile:
            raise ValueError("sampling shared cannot be compiled, expected as-run or off")

    def captioner(self, model: BaseCaptioner) -> Any:
        return SAMPLINGS[self.sampling](super().captioner(model))


class _View:
    """Wraps a captioner for ``self_critical``, which samples from it token by token.

    Within a step, calls without gradients are the sampling. Other attributes are the captioner's.
    """

    is_stochastic = False

    def __init__(self, model: Any) -> None:
        self.model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)


class WithoutDropout(_View):
    """A captioner that samples without dropout; its log-probabilities have dropout."""

    def encode(self, features: Tensor, lengths: Lengths | None = None) -> Tensor:
        if torch.is_grad_enabled():
            return cast(Tensor, self.model.encode(features, lengths))
        with _evaluating(self.model):
            return cast(Tensor, self.model.encode(features, lengths))

    def init_cache(self, *arguments: Any) -> DecoderCache:
        with _evaluating(self.model):
            return _Evaluated(self.model, self.model.init_cache(*arguments))


class _Evaluated(NamedTuple):
    """A cache that is read in evaluation mode."""

    model: nn.Module
    state: DecoderCache

    def step(self, tokens: Tensor) -> Tensor:
        with _evaluating(self.model):
            return self.state.step(tokens)

    def reorder(self, beams: Tensor) -> None:
        self.state.reorder(beams)


class SharedMasks(_View):
    """A captioner whose samples and their log-probabilities have the same dropout masks.

    The images are encoded once for both. The masks are those that the decoder's pass over whole
    captions will draw: they are drawn before it, from the same state of the generator.

    Args:
        model: a ``Captioner``, alone or ``EndToEnd``.

    Raises:
        ValueError: another captioner.
    """

    def __init__(self, model: BaseCaptioner) -> None:
        super().__init__(model)
        decoder = model.captioner if isinstance(model, EndToEnd) else model
        if not isinstance(decoder, Captioner):
            kind = type(model).__name__
            raise ValueError(f"shared masks need a Captioner, not a {kind}")
        self._decoder = decoder
        self._memory: Tensor | None = None
        self._round: _Round | None = None

    def encode(self, features: Tensor, lengths: Lengths | None = None) -> Tensor:
        """Encode for sampling if called without gradients, else return that sampling's memory."""
        if torch.is_grad_enabled():
            memory, self._memory = self._memory, None
            return memory if memory is not None else self.model.encode(features, lengths)
        with torch.enable_grad():
            self._memory = self.model.encode(features, lengths)
        return self._memory

    @torch.no_grad()
    def init_cache(
        self,
        memory: Tensor,
        memory_lengths: Tensor | None = None,
        num_beams: int = 1,
        max_length: int | None = None,
    ) -> DecoderCache:
        """Draw the masks of ``num_beams`` samples of each image; nothing if there is no dropout."""
        model, T = self._decoder, max_length or self._decoder.max_length
        images = torch.arange(len(memory), device=memory.device).repeat_interleave(num_beams)
        self._round = _Round(memory, memory_lengths, images, T, _rng_state(memory.device))
        if not model.is_stochastic:
            return model.init_cache(memory, memory_lengths, num_beams, T)
        return MaskedCache(model, memory, memory_lengths, num_beams, T)

    def decode(
        self, tokens: Tensor, memory: Tensor, memory_lengths: Lengths | None = None
    ) -> Tensor:
        """Samples (B K, T) to the log-probabilities (B K, T, V) under the masks of their sampling.

        The samples are padded to the length of the masks.
        """
        sampled, self._round = self._round, None
        if sampled is None:
            return cast(Tensor, self.model.decode(tokens, memory, memory_lengths))
        model, T = self._decoder, tokens.shape[1]
        padded = F.pad(tokens, (0, sampled.max_length - T), value=model.pad_id)
        _set_rng_state(sampled.rng, memory.device)
        # the samples of an image share its memory, which is projected once for all
        states = model.states(padded, sampled.memory, sampled.memory_lengths, sampled.images)
        return model.predict(states[:, :T])


class _Round(NamedTuple):
    """The current samples' inputs, and the generator's state before their masks were drawn."""

    memory: Tensor
    memory_lengths: Tensor | None
    images: Tensor
    max_length: int
    rng: Tensor


def _rng_state(device: torch.device) -> Tensor:
    """The state of the device's default generator, which dropout draws from."""
    if device.type == "cpu":
        return torch.get_rng_state()
    return cast(Tensor, torch.get_device_module(device).get_rng_state(device))


def _set_rng_state(state: Tensor, device: torch.device) -> None:
    if device.type == "cpu":
        torch.set_rng_state(state)
    else:
        torch.get_device_module(device).set_rng_state(state, device)


SAMPLINGS: dict[str, Callable[[Any], Any]] = {
    "as-run": lambda model: model,
    "shared": SharedMasks,
    "off": WithoutDropout,
}


class MaskedCache:
    """K samples of each image under dropout masks that are fixed by layer and position.

    A step returns what the decoder's pass over whole captions of ``max_length`` tokens returns for
    that position, if that pass draws its masks from the generator's state at the start.

    Args:
        model: in training mode.
        memory: (B, L, d), from ``model.encode``.
        memory_lengths: (B,) valid rows, or (B, L) True where valid; all if None.
        num_beams: K, samples of each image.
        max_length: T, tokens of a sample.
    """

    def __init__(
        self,
        model: Captioner,
        memory: Tensor,
        memory_lengths: Lengths | None,
        num_beams: int,
        max_length: int,
    ) -> None:
        self.model, self.shape, self.max_length = model, (len(memory), num_beams), max_length
        self.length = 0
        mask, d = padding_mask(memory_lengths, memory), memory.shape[-1]
        S, T, decoder = len(memory) * num_beams, max_length, model.decoder

        def masks(dropout: nn.Module, width: int = d) -> Tensor:
            """(S, T, width): 0 where dropped, else dropout's scale."""
            return cast(Tensor, dropout(memory.new_ones(S, T, width)))

        # in the order in which the decoder's pass draws
        self._words = masks(model.dropout)
        self._layers = []
        for layer in cast(Iterable[DecoderLayer], decoder.layers):
            keys, values = layer.cross_attention.project(memory, mask)
            mixer: _Expansion | _Attention
            if isinstance(layer.mixer, DynamicExpansion):
                mixer = _Expansion(layer.mixer, S, T)
            else:
                mixer = _Attention(cast(Attention, layer.mixer), S, T)
            dropped = [masks(layer.dropout), masks(layer.dropout)]
            if layer.has_feed_forward:
                hidden = layer.feed_forward.linear_1.out_features
                dropped += [masks(layer.feed_forward.dropout, hidden), masks(layer.dropout)]
            self._layers.append(_Layer(layer, mixer, keys, values, mask, dropped))
        self._reduced = masks(decoder.dropout) if decoder.reduction == "linear" else None

    @torch.no_grad()
    def step(self, tokens: Tensor) -> Tensor:
        """The next token of each sample (B, K) to log p of the one after it, (B, K, V).

        Raises:
            ValueError: tokens are not (B, K), or max_length tokens were read already.
        """
        check_step(tokens, self.shape, self.length, self.max_length)
        model, decoder, t = self.model, self.model.decoder, self.length
        words = model.embedding(tokens.flatten()) * self._words[:, t]  # (S, d)
        outputs = [words * words.shape[-1] ** 0.5 + model.positions.weight[t]]
        for layer in self._layers:
            outputs.append(layer.step(outputs[-1], t))
        x = outputs[-1]
        if self._reduced is not None:
            x = x + decoder.reduce(torch.cat(outputs[1:], -1)) * self._reduced[:, t]
        x = x if decoder.reduction == "none" else decoder.norm(x)
        self.length += 1
        return model.predict(x).view(*tokens.shape, -1)

    def reorder(self, beams: Tensor) -> None:
        """Not possible: a sample's masks are its own.

        Raises:
            ValueError: always.
        """
        raise ValueError("samples under masks of their own cannot continue one another")


class _Layer(NamedTuple):
    """A decoder layer, the memory's keys and values (B, L, d), and the masks of its branches."""

    layer: DecoderLayer
    mixer: _Attention | _Expansion
    keys: Tensor
    values: Tensor
    mask: Tensor | None
    dropped: list[Tensor]

    def step(self, x: Tensor, t: int) -> Tensor:
        """The token at ``t`` of every sample, (S, d) to (S, d)."""
        layer, (mixed, read, *fed) = self.layer, (mask[:, t] for mask in self.dropped)
        x = x + self.mixer.step(layer.norm_1(x), t) * mixed
        queries = layer.norm_2(x).view(len(self.keys), -1, x.shape[-1])  # (B, K, d)
        found = layer.cross_attention.attend(queries, self.keys, self.values, self.mask)
        x = x + found.flatten(0, 1) * read
        if fed:
            hidden, out = fed
            hidden = layer.feed_forward.linear_1(layer.norm_3(x)).relu() * hidden  # (S, d_ff)
            x = x + layer.feed_forward.linear_2(hidden) * out
        return x


class _Attention:
    """Causal self-attention: keys and values of all tokens, (S, T, d)."""

    def __init__(self, attention: Attention, S: int, T: int) -> None:
        self.attention = attention
        self.keys, self.values = attention.key.weight.new_zeros(2, S, T, attention.d_model)

    def step(self, x: Tensor, t: int) -> Tensor:
        """The token at ``t``, (S, d) to (S, d)."""
        attention = self.attention
        self.keys[:, t], self.values[:, t] = attention.key(x), attention.value(x)
        Q = attention.query(x)[:, None]  # (S, 1, d)
        keys, values = self.keys[:, : t + 1], self.values[:, : t + 1]
        return attention.output(multi_head(Q, keys, values, attention.num_heads), Q).squeeze(1)


class _Masks(NamedTuple):
    """The dropout masks of a dynamic expansion of T tokens, N = T N_E, and their scale."""

    M: Tensor
    """(S, T, N), for token i and row (j, n)."""
    rows: tuple[Tensor, Tensor]
    """For both streams' expanded vectors, (S, N, d), or (S, N, 1) if whole vectors are dropped."""
    tokens: tuple[Tensor, Tensor]
    """For both streams' backward values, (S, T, d)."""
    scale: float

    @classmethod
    def draw(cls, e: DynamicExpansion, S: int, T: int) -> _Masks:
        """The masks that ``dynamic_expansion`` draws for keys (S, T, d)."""
        p, N, device = e.dropout, T * e.num_expansions, e.key.weight.device
        rows = S, N, e.d_model if e.dropout_of == "values" else 1
        tokens = S, T, e.d_model
        if choose(e.implementation, T + e.num_expansions <= N) == "factored":
            shapes = (S, T, N), rows, rows, tokens, tokens
            M, *F_B = (keep_mask(shape, p, device) for shape in shapes)
            return cls(M, (F_B[0], F_B[1]), (F_B[2], F_B[3]), keep_scale(p))
        shapes = (S, N, T), rows, tokens, rows, tokens
        drawn = [F.dropout(e.key.weight.new_ones(shape), p) > 0 for shape in shapes]
        M, F_1, B_1, F_2, B_2 = drawn
        return cls(M.mT, (F_1, F_2), (B_1, B_2), 1 / (1 - p))


class _Expansion:
    """A causal dynamic expansion with dropout, one token at a time, and the cache of earlier ones.

    Row (j, n) of M is (c_j + q_n) k_i / sqrt(d). An expanded vector gathers only from tokens up to
    its own, so it is computed, with its dropout, once.
    """

    def __init__(self, e: DynamicExpansion, S: int, T: int) -> None:
        weight, N_E = e.key.weight, e.num_expansions
        self.e, self.masks = e, _Masks.draw(e, S, T)
        self.precise = at_least_float32(weight.dtype)
        self.queries = e.query_vectors.detach().to(self.precise).mT  # (d, N_E)
        self.keys, self.conditions = weight.new_zeros(2, S, T, e.d_model)
        self.values = weight.new_zeros(2, S, T, e.d_model)
        self.expanded = weight.new_zeros(2, S, T * N_E, e.d_model)
        self.P = weight.new_zeros(S, T, N_E, dtype=self.precise)

    def step(self, x: Tensor, t: int) -> Tensor:
        """The token at ``t``, (S, d) to (S, d)."""
        e, masks, precise = self.e, self.masks, self.precise
        N_E, n = e.num_expansions, t + 1
        own, known = slice(t * N_E, n * N_E), slice(n * N_E)
        key, condition = e.key(x), e.condition(x)  # (S, d)
        self.keys[:, t], self.conditions[:, t] = key, condition
        self.values[0, :, t], self.values[1, :, t] = e.value_1(x), e.value_2(x)
        with torch.autocast(x.device.type, enabled=False):
            keys, conditions = (y[:, :n].to(precise) for y in (self.keys, self.conditions))
            p = key.to(precise) @ self.queries  # (S, N_E)
            self.P[:, t] = p
            scale = masks.scale * e.d_model**-0.5
            # M of the new rows (t, n) over all tokens i <= t; of all rows (j, n) over token t
            M_fw = (keys @ condition.to(precise)[..., None] + self.P[:, :n]) * scale
            M_fw = M_fw * masks.M[:, :n, own]  # (S, n, N_E)
            M_bw = (conditions @ key.to(precise)[..., None] + p[:, None]) * scale
            M_bw = M_bw.flatten(1) * masks.M[:, t, known]  # (S, n N_E)
        biases = condition[:, None] + e.bias_vectors.to(condition.dtype)  # (S, N_E, d)
        streams = []
        for s, sign in enumerate((1, -1)):
            V, rows = self.values[s, :, :n], self.expanded[s]
            R_fw = normalise((sign * M_fw).relu().mT).to(V.dtype)  # (S, N_E, n)
            rows[:, own] = (R_fw @ V + biases) * masks.rows[s][:, own]
            R_bw = normalise((sign * M_bw).relu()).to(V.dtype)  # (S, n N_E)
            B = (R_bw[:, None] @ rows[:, known]).squeeze(1)  # (S, d)
            streams.append(B * masks.tokens[s][:, t] * masks.scale**2)
        gate = e.selector(x).sigmoid()
        return gate * streams[0] + (1 - gate) * streams[1]
