"""Encoder and decoder layers and stacks (v1 equations 10-11, v2 equations 11-12), pre-norm.

A layer's mixer mixes tokens: attention, attention with an AoA gate, or an expansion.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from torch_impl.common.checks import one_of, positive
from torch_impl.common.dropout import Dropout
from torch_impl.common.padding import (
    Lengths,
    check_tokens,
    padding_mask,
    zero_padding,
)
from torch_impl.expansion import (
    DynamicExpansion,
    StaticExpansion,
)
from torch_impl.layers.attention import AttentionOnAttention, MultiHeadAttention

REDUCTIONS = ("linear", "norm", "none")


@dataclass(frozen=True)
class Mixer:
    """A layer's mixer: "attention", "aoa", "static:32,64" or "dynamic:16".

    Raises:
        ValueError: an unknown kind, coefficients missing or superfluous, several for "dynamic", one
            below 1.
    """

    kind: str
    coefficients: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in ("attention", "aoa", "static", "dynamic"):
            raise ValueError(
                f"unknown mixer {self.kind!r}, expected attention, aoa, static:... or dynamic:..."
            )
        if self.attends and self.coefficients:
            raise ValueError(f"mixer {self.kind} takes no expansion coefficients")
        if not self.attends and not self.coefficients:
            raise ValueError(f"mixer {self.kind} needs expansion coefficients: {self.kind}:16")
        if self.kind == "dynamic" and len(self.coefficients) > 1:
            raise ValueError(f"mixer dynamic takes one coefficient, not {self.coefficients}")
        for coefficient in self.coefficients:
            positive(coefficient, f"an expansion coefficient of mixer {self.kind}")

    @classmethod
    def parse(cls, text: str, *, causal: bool = False) -> Mixer:
        """The inverse of ``str``; a ``causal`` mixer, of a decoder, cannot be static.

        Raises:
            ValueError: says what is wrong with the text.
        """
        kind, colon, numbers = text.partition(":")
        try:
            coefficients = tuple(int(number) for number in numbers.split(",")) if colon else ()
        except ValueError:
            raise ValueError(
                f"mixer {text!r}: coefficients must be whole numbers joined by commas"
            ) from None
        mixer = cls(kind, coefficients)
        if causal and kind == "static":
            raise ValueError(f"mixer {text!r}: static expansion sees later words, use dynamic")
        return mixer

    def __str__(self) -> str:
        return ":".join(filter(None, (self.kind, ",".join(map(str, self.coefficients)))))

    @property
    def attends(self) -> bool:
        """Whether it is a form of attention, not an expansion."""
        return self.kind in ("attention", "aoa")

    def module(self, d_model: int, num_heads: int, *, causal: bool, dropout: float) -> nn.Module:
        """The module: ``num_heads`` is for attention, ``causal`` and dropout for expansions."""
        if self.kind == "attention":
            return MultiHeadAttention(d_model, num_heads)
        if self.kind == "aoa":
            return AttentionOnAttention(d_model, num_heads)
        if self.kind == "static":
            return StaticExpansion(d_model, self.coefficients, dropout=dropout)
        return DynamicExpansion(d_model, *self.coefficients, causal=causal, dropout=dropout)


class FeedForward(nn.Module):
    """linear_2(dropout(relu(linear_1(x)))), d_model to d_ff and back."""

    def __init__(self, d_model: int, d_ff: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.linear_1 = nn.Linear(d_model, positive(d_ff, "d_ff"))
        self.linear_2 = nn.Linear(d_ff, d_model)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear_2(self.dropout.of_relu(self.linear_1(x)))
        return out


class Layer(nn.Module):
    """Base class of encoder and decoder layers: a residual mixer first, the feed-forward last.

    With AoA there is no feed-forward (v1 section 4.2). Dropout is on every residual branch.

    Raises:
        ValueError: sizes below 1 or d_model not divisible by num_heads.
    """

    causal: bool

    def __init__(self, d_model: int, mixer: Mixer, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.d_model, self.attends = d_model, mixer.attends
        self.has_feed_forward = mixer.kind != "aoa"
        self.norm_1 = nn.LayerNorm(d_model)
        self.mixer = mixer.module(d_model, num_heads, causal=self.causal, dropout=dropout)
        self.dropout = Dropout(dropout)

    def mix(self, x: Tensor, lengths: Lengths | None) -> Tensor:
        """x + mixer(norm_1(x)), (B, L, d), with zeros for x in padding."""
        check_tokens(x, self.d_model)
        mask = padding_mask(lengths, x)
        x = zero_padding(x, mask)
        normed = self.norm_1(x)
        if self.attends:
            mixed = self.mixer(normed, normed, mask, self.causal)
        else:
            mixed = self.mixer(normed, mask)
        return x + self.dropout(mixed)


class EncoderLayer(Layer):
    """x + mixer(norm_1(x)), then x + feed_forward(norm_2(x)) (v1 equation 10, v2 equation 11).

    Raises:
        ValueError: as `Layer`.
    """

    causal = False

    def __init__(
        self, d_model: int, mixer: Mixer, *, d_ff: int, num_heads: int, dropout: float = 0.0
    ) -> None:
        super().__init__(d_model, mixer, num_heads, dropout)
        if self.has_feed_forward:
            self.norm_2 = nn.LayerNorm(d_model)
            self.feed_forward = FeedForward(d_model, d_ff, dropout)

    def forward(self, x: Tensor, lengths: Lengths | None = None) -> Tensor:
        """(B, L, d) to (B, L, d); padded rows are finite and reach no valid row.

        Raises:
            ValueError: x is not (B, L, d_model) or the lengths do not fit it.
        """
        x = self.mix(x, lengths)
        if self.has_feed_forward:
            x = x + self.dropout(self.feed_forward(self.norm_2(x)))
        return x


class DecoderLayer(Layer):
    """A causal mixer, cross-attention, feed-forward (v1 equation 11, v2 equation 12).

    With AoA the cross-attention is gated too.

    Raises:
        ValueError: as `Layer`, or a static mixer.
    """

    causal = True

    def __init__(
        self, d_model: int, mixer: Mixer, *, d_ff: int, num_heads: int, dropout: float = 0.0
    ) -> None:
        if mixer.kind == "static":
            raise ValueError("static expansion sees later words: a decoder cannot use it")
        super().__init__(d_model, mixer, num_heads, dropout)
        self.norm_2 = nn.LayerNorm(d_model)
        cross = AttentionOnAttention if mixer.kind == "aoa" else MultiHeadAttention
        self.cross_attention = cross(d_model, num_heads)
        if self.has_feed_forward:
            self.norm_3 = nn.LayerNorm(d_model)
            self.feed_forward = FeedForward(d_model, d_ff, dropout)

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        lengths: Lengths | None = None,
        memory_lengths: Lengths | None = None,
        image_index: Tensor | None = None,
    ) -> Tensor:
        """Words (B, T, d) and memory (B, L, d) to (B, T, d).

        ``image_index`` (B,) is the row of a shared memory that each caption reads; its own if None.

        Raises:
            ValueError: a shape is not (B, ., d_model) or lengths do not fit.
        """
        x = self.mix(x, lengths)
        read = self.cross_attention(self.norm_2(x), memory, memory_lengths, image_index=image_index)
        x = x + self.dropout(read)
        if self.has_feed_forward:
            x = x + self.dropout(self.feed_forward(self.norm_3(x)))
        return x


class Stack(nn.Module):
    """N layers, and the reduction of their outputs x_1 .. x_N.

    "linear": norm(x_N + reduce(concat(x_1 .. x_N))) (v2 section III.B); "norm": norm(x_N), the
    last norm of pre-norm stacks; "none": x_N, as v1's equations 10 and 11 print it.

    Raises:
        ValueError: sizes below 1, d_model not divisible by num_heads, an unknown reduction, a
            static mixer in a decoder.
    """

    layer: type[EncoderLayer | DecoderLayer]

    def __init__(
        self,
        d_model: int,
        mixer: Mixer,
        num_layers: int,
        *,
        d_ff: int,
        num_heads: int,
        reduction: str,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        positive(num_layers, "num_layers")
        self.reduction = one_of(reduction, "reduction", REDUCTIONS)
        self.layers = nn.ModuleList()
        if reduction == "linear":
            self.reduce = nn.Linear(num_layers * d_model, d_model)
        if reduction != "none":
            self.norm = nn.LayerNorm(d_model)
        self.dropout = Dropout(dropout)
        self.layers.extend(
            self.layer(d_model, mixer, d_ff=d_ff, num_heads=num_heads, dropout=dropout)
            for _ in range(num_layers)
        )

    def combine(self, outputs: list[Tensor]) -> Tensor:
        """The reduction of the layers' outputs, (B, L, d) each, to (B, L, d)."""
        x = outputs[-1]
        if self.reduction == "linear":
            x = x + self.dropout(self.reduce(torch.cat(outputs, dim=-1)))  # (B, L, d)
        return x if self.reduction == "none" else self.norm(x)


class Encoder(Stack):
    """A stack of encoder layers, see `Stack`."""

    layer = EncoderLayer

    def forward(self, x: Tensor, lengths: Lengths | None = None) -> Tensor:
        """(B, L, d) to (B, L, d); padded rows are finite and reach no valid row."""
        mask = padding_mask(lengths, x)
        outputs = [x]
        for layer in self.layers:
            outputs.append(layer(outputs[-1], mask))
        return self.combine(outputs[1:])


class Decoder(Stack):
    """A stack of decoder layers, see `Stack`; all attend to the same memory."""

    layer = DecoderLayer

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        lengths: Lengths | None = None,
        memory_lengths: Lengths | None = None,
        image_index: Tensor | None = None,
    ) -> Tensor:
        """Words (B, T, d) and memory (B, L, d) to (B, T, d), see `DecoderLayer`."""
        mask, memory_mask = padding_mask(lengths, x), padding_mask(memory_lengths, memory)
        outputs = [x]
        for layer in self.layers:
            outputs.append(layer(outputs[-1], memory, mask, memory_mask, image_index))
        return self.combine(outputs[1:])
