"""The synthetic de-noising task of Middle-Out Decoding (section 4.1), for several seeds at once.

A symmetric sequence y (equation 8) is predicted from a noisy one x. The models are regressors: no
softmax, no embedding, the decoder's inputs and outputs are the numbers themselves. Every tensor has
a leading axis of seeds, each with its own weights, data and order: S seeds train together, faster,
and exactly as each would alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from torch_impl.common.padding import Lengths
from torch_impl.middle_out import (
    Weights,
    input_entry,
    run,
    step,
    weight_sizes,
)

MIN_N, MAX_N = 5, 10
MAX_LENGTH = 2 * MAX_N + 1
NOISE = 0.0035
_DECODER = "decoder_"


def symmetric(mu: Tensor, N: Tensor, length: int) -> Tensor:
    """Equation 8: y_n = mu - |n - N| mu^2 / N, zero beyond 2 N + 1.

    Args:
        mu: the middle numbers, of any shape.
        N: numbers on either side, integers of the same shape, at least 1.
        length: of the padded sequences.

    Returns:
        (..., length).

    Raises:
        ValueError: a sequence is longer than ``length``, or an N below 1.
    """
    if bool((N < 1).any()) or int(2 * N.max() + 1) > length:
        raise ValueError(f"N must lie between 1 and {(length - 1) // 2} for sequences of {length}")
    n = torch.arange(length, device=mu.device)  # (length,)
    mu, N = mu.unsqueeze(-1), N.unsqueeze(-1)  # (..., 1)
    y = mu - (n - N).abs() * (mu**2 / N)  # (..., length)
    return y.masked_fill(n > 2 * N, 0)


@dataclass(frozen=True)
class Sequences:
    """Noisy sequences ``x`` (..., T), the clean ``y`` (..., T), zero beyond ``lengths`` (...)."""

    x: Tensor
    y: Tensor
    lengths: Tensor

    def __getitem__(self, index: Any) -> Sequences:
        """The sequences at ``index`` of the leading axes."""
        return Sequences(self.x[index], self.y[index], self.lengths[index])

    @staticmethod
    def stack(each: Sequence[Sequences]) -> Sequences:
        """The sequences of several seeds, (S, ...)."""
        return Sequences(
            *(torch.stack([getattr(s, name) for s in each]) for name in ("x", "y", "lengths"))
        )


def draw_sequences(count: int, generator: torch.Generator) -> Sequences:
    """``count`` random pairs in float64 (section 4.1).

    mu ~ U(-1, 1), N uniform in 5 to 10, and on each number noise ~ U(-0.0035, 0.0035).
    """
    mu = 2 * torch.rand(count, generator=generator, dtype=torch.float64) - 1
    N = torch.randint(MIN_N, MAX_N + 1, (count,), generator=generator)
    uniforms = torch.rand(count, MAX_LENGTH, generator=generator, dtype=torch.float64)
    noise = NOISE * (2 * uniforms - 1)
    lengths = 2 * N + 1
    noise = noise.masked_fill(torch.arange(MAX_LENGTH) >= lengths.unsqueeze(-1), 0)
    y = symmetric(mu, N, MAX_LENGTH)
    return Sequences(y + noise, y, lengths)


class Denoiser(nn.Module):
    """Sequence-to-sequence with attention or middle-out, as regressors, for S seeds at once.

    Each direction of the encoder has half of ``hidden_size``, so that the decoders can start from
    its final state. A linear layer on the final hidden state predicts the initial value: the first
    number, or the middle one for middle-out. The decoders continue from there with attention over
    the encoder (1)-(4) and, with ``self_attention``, over their own outputs and states (7). The
    output is as long as the input.

    Every weight is initialised uniformly in +-1 / sqrt(hidden_size), from its seed alone.

    Args:
        seeds: one for each of the S models.
        middle_out: two decoders from the middle, not one from the left.
        self_attention: one of `middle_out.SELF_ATTENTION`.
        hidden_size: d, of every LSTM.

    Raises:
        ValueError: no seeds, an odd or too small ``hidden_size``, an unknown ``self_attention``.
    """

    def __init__(
        self,
        seeds: Sequence[int],
        *,
        middle_out: bool,
        self_attention: str = "none",
        hidden_size: int = 100,
    ) -> None:
        super().__init__()
        if not seeds:
            raise ValueError("seeds is empty, expected at least one")
        if hidden_size < 2 or hidden_size % 2:
            raise ValueError(f"hidden_size is {hidden_size}, expected even: a half a direction")
        d, k, P = hidden_size, hidden_size // 2, 2 if middle_out else 1
        self.seeds, self.middle_out = tuple(seeds), middle_out
        # declared for type checkers: they are registered by name
        self.encoder_W: nn.Parameter
        self.encoder_b: nn.Parameter
        self.initial_w: nn.Parameter
        self.initial_b: nn.Parameter
        self.output_w: nn.Parameter
        self.output_b: nn.Parameter
        sizes = (
            {
                "encoder_W": (2, 1 + k, 4 * k),
                "encoder_b": (2, 4 * k),
                "initial_w": (d,),
                "initial_b": (),
            }
            | {
                _DECODER + name: shape
                for name, shape in weight_sizes(P, d, d, 1, self_attention).items()
            }
            | {"output_w": (P, d), "output_b": (P,)}
        )
        generators = [torch.Generator().manual_seed(seed) for seed in self.seeds]
        for name, shape in sizes.items():
            drawn = [2 * torch.rand(shape, generator=one) - 1 for one in generators]
            self.register_parameter(name, nn.Parameter(torch.stack(drawn) / d**0.5))

    def encode(
        self, x: Tensor, mask: Tensor, active: Sequence[int] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """The encoder's states (S, B, T, d), and the final h and c, (S, B, d) each.

        Args:
            x: noisy sequences (S, B, T).
            mask: (S, B, T), True on their numbers.
            active: see `middle_out.run`.
        """
        last = mask.sum(-1, keepdim=True) - 1
        n = torch.arange(x.shape[-1], device=x.device)
        # the index in the reversed sequence; padding stays at the end
        mirror = torch.where(mask, last - n, n)  # (S, B, T)
        both = (
            torch.stack([x, x.gather(-1, mirror)], 1).flatten(0, 1).unsqueeze(-1)
        )  # (2 S, B, T, 1)
        weights = Weights(self.encoder_W.flatten(0, 1)[None], self.encoder_b.flatten(0, 1)[None])
        zeros = x.new_zeros(*both.shape[:2], self.encoder_W.shape[-1] // 4)
        found = run(weights, (zeros, zeros), both, active=active)
        h, c = (states.unflatten(0, (-1, 2)) for states in found)  # (S, 2, B, T, k)

        def final(states: Tensor) -> Tensor:
            index = last[:, None, :, :, None].expand(-1, 2, -1, 1, states.shape[-1])
            return states.gather(3, index).squeeze(3).movedim(1, 2).flatten(2)  # (S, B, d)

        backward = h[:, 1].gather(2, mirror.unsqueeze(-1).expand_as(h[:, 1]))  # (S, B, T, k)
        return torch.cat([h[:, 0], backward], -1), (final(h), final(c))

    def forward(self, x: Tensor, lengths: Lengths, y: Tensor) -> Tensor:
        """Every number of y from those generated before it, teacher-forced.

        Args:
            x: noisy sequences (S, B, T).
            lengths: (S, B), odd for middle-out.
            y: clean sequences (S, B, T).

        Returns:
            (S, B, T); undefined beyond ``lengths``.
        """
        lengths = torch.as_tensor(lengths, device=x.device)
        # longest first, so that finished sequences leave the loop
        longest = lengths.argsort(-1, descending=True)
        x, y = (a.gather(1, longest.unsqueeze(-1).expand_as(a)) for a in (x, y))
        mask, places, entries = self._orders(x, lengths.gather(1, longest))
        memory, state = self.encode(x, mask, _active(mask))
        given = y.gather(-1, places).unsqueeze(-1)[:, :, :-1]  # (S, B, T - 1, 1)
        h, _ = run(self._decoders(), state, given, memory, mask, active=_active(mask[..., 1:]))
        sides = torch.arange(h.shape[2], device=x.device) % self.output_b.shape[1]  # (T - 1,)
        # (S, 1, T - 1, d) and (S, 1, T - 1)
        w, b = self.output_w[:, sides].unsqueeze(1), self.output_b[:, sides].unsqueeze(1)
        generated = torch.cat([self._initial(state[0]), (h * w).sum(-1) + b], -1)  # (S, B, T)
        y_hat = generated.gather(-1, entries)
        return y_hat.gather(1, longest.argsort(-1).unsqueeze(-1).expand_as(y_hat))

    @torch.no_grad()
    def generate(self, x: Tensor, lengths: Lengths) -> Tensor:
        """``forward`` on its own outputs in place of y, one step at a time."""
        mask, _, entries = self._orders(x, lengths)
        memory, state = self.encode(x, mask)
        weights, P = self._decoders(), self.output_b.shape[1]
        outputs, states = self._initial(state[0]).unsqueeze(-1), memory[:, :, :0]
        side_states = [state] * P
        for t in range(x.shape[-1] - 1):
            p, e = t % P, outputs[:, :, input_entry(t, P)]
            h, c = step(weights.side(p), side_states[p], e, memory, mask, outputs, states)
            side_states[p] = h, c
            value = (h * self.output_w[:, p, None]).sum(-1) + self.output_b[:, p, None]
            outputs = torch.cat([outputs, value[:, :, None, None]], 2)  # (S, B, t + 2, 1)
            states = torch.cat([states, h.unsqueeze(2)], 2)  # (S, B, t + 1, d)
        return outputs.squeeze(-1).gather(-1, entries)

    def _initial(self, h: Tensor) -> Tensor:
        """The initial value (S, B, 1) from the final hidden state (S, B, d)."""
        return (h @ self.initial_w.unsqueeze(-1)) + self.initial_b[:, None, None]

    def _decoders(self) -> Weights:
        names = [name for name, _ in self.named_parameters() if name.startswith(_DECODER)]
        return Weights(
            **{name.removeprefix(_DECODER): getattr(self, name).transpose(0, 1) for name in names}
        )

    def _orders(self, x: Tensor, lengths: Lengths) -> tuple[Tensor, Tensor, Tensor]:
        """The mask, the place of each generated number, and its inverse, (S, B, T) each.

        Middle-out generates the middle first, then left and right in turn.
        """
        lengths = torch.as_tensor(lengths, device=x.device)
        n = torch.arange(x.shape[-1], device=x.device).expand(x.shape)
        mask = n < lengths.unsqueeze(-1)
        if not self.middle_out:
            return mask, n, n
        N = (lengths.unsqueeze(-1) - 1) // 2
        places = torch.where(n % 2 == 1, N - (n + 1) // 2, N + n // 2)
        entries = torch.where(n < N, 2 * (N - n) - 1, 2 * (n - N))
        return mask, torch.where(mask, places, n), torch.where(mask, entries, n)


def _active(mask: Tensor) -> list[int]:
    """At each step of mask (S, B, T), the largest number over seeds of unfinished sequences."""
    counts: list[int] = mask.sum(1).amax(0).tolist()  # (T,)
    return counts


def mse(y_hat: Tensor, y: Tensor, lengths: Tensor) -> Tensor:
    """The mean squared error of each sequence: (..., T) to (...)."""
    mask = torch.arange(y.shape[-1], device=y.device) < lengths.unsqueeze(-1)
    return ((y_hat - y) ** 2).where(mask, 0).sum(-1) / lengths


def symmetric_mse(y_hat: Tensor, lengths: Tensor) -> Tensor:
    """The mean squared error between a sequence's halves, one mirrored: (..., T) to (...)."""
    n = torch.arange(y_hat.shape[-1], device=y_hat.device)
    mirror = (lengths.unsqueeze(-1) - 1 - n).clamp(min=0)
    N = (lengths - 1) // 2
    squares = (y_hat - y_hat.gather(-1, mirror)) ** 2
    return squares.where(n < N.unsqueeze(-1), 0).sum(-1) / N


def orders(count: int, steps: int, batch_size: int, generator: torch.Generator) -> Tensor:
    """The indices below ``count`` of every step's batch, (steps, batch_size).

    Random permutations, one after the other, cut into batches.
    """
    passes = -(-steps * batch_size // count)
    order = torch.cat([torch.randperm(count, generator=generator) for _ in range(passes)])
    return order[: steps * batch_size].view(steps, batch_size)
