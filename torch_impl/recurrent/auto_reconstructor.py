"""The auto-reconstructor (ARNet 5-9); distances of training and inference states (10-12)."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

from torch_impl.common.padding import (
    Lengths,
    can_check_values,
    padding_mask,
    zero_padding,
)
from torch_impl.recurrent import LSTM


class AutoReconstructor(nn.Module):
    """An LSTM that reads the decoder's h_t and reconstructs h_{t-1} (ARNet 5-7).

    It is trained jointly with the decoder; decoding does not use it.

    Args:
        hidden_size: of the decoder's states.
        size: of its own; the same if None.
        implementation: of its LSTM.

    Raises:
        ValueError: a size below 1, an unknown implementation.
    """

    def __init__(
        self, hidden_size: int, size: int | None = None, *, implementation: str = "auto"
    ) -> None:
        super().__init__()
        size = hidden_size if size is None else size
        self.lstm = LSTM(hidden_size, size, implementation=implementation)
        self.fc = nn.Linear(size, hidden_size)

    def forward(self, hs: Tensor, lengths: Lengths | None = None) -> Tensor:
        """L_AR^t = || h_{t-1} - h^_{t-1} ||^2 of every t but the first, which has no predecessor.

        Args:
            hs: (B, T, d), the decoder's states.
            lengths: (B,) steps of each, or (B, T) True where there is one, without holes: the
                state before is that of the row before; all if None.

        Returns:
            (B, T - 1), 0 in padding.

        Raises:
            ValueError: hs are not (B, T, d) with T >= 1, or lengths do not fit them.
        """
        mask = padding_mask(lengths, hs)
        hs = zero_padding(hs, mask)
        primes, _ = self.lstm(hs, lengths=mask)
        # time first, as the LSTM left them in memory: (T - 1, B, .)
        present, past = primes.transpose(0, 1)[1:], hs.transpose(0, 1)[:-1]
        errors = (past - self.fc(present)).square().sum(-1).T  # (B, T - 1)
        return errors if mask is None else errors.where(mask[:, 1:], 0)


def joint_loss(nll: Tensor, errors: Tensor, lambda_: float) -> Tensor:
    """L = L_NLL + lambda sum_t L_AR^t (ARNet 9).

    Args:
        nll: (...), the negative log-likelihood.
        errors: (..., T), of the steps.
        lambda_: the weight of the errors; with 0 the loss is ``nll`` itself.

    Raises:
        ValueError: lambda below 0.
    """
    check_lambda(lambda_)
    return nll + lambda_ * errors.sum(-1) if lambda_ else nll


def check_lambda(lambda_: float) -> float:
    """``lambda_``, or ValueError unless it is finite and at least 0."""
    if not 0 <= lambda_ < float("inf"):
        raise ValueError(f"lambda is {lambda_}, expected at least 0")
    return lambda_


def cosine_distance(h_1: Tensor, h_2: Tensor) -> Tensor:
    """d(h_1, h_2) = 1 - h_1^T h_2 / (||h_1|| ||h_2||) (ARNet 10): (..., d) to (...).

    Raises:
        ValueError: shapes that differ, or a vector of zeros, which has no direction.
    """
    if h_1.shape != h_2.shape:
        raise ValueError(
            f"hidden states of shapes {tuple(h_1.shape)} and {tuple(h_2.shape)}, expected the same"
        )
    norms = h_1.norm(dim=-1) * h_2.norm(dim=-1)
    if can_check_values(norms) and (norms == 0).any():
        raise ValueError("a hidden state of norm 0 has no cosine distance")
    return 1 - (h_1 * h_2).sum(-1) / norms


def mean_centroid_distance(U: Tensor, V: Tensor) -> Tensor:
    """The cosine distance of the means (ARNet 11) of U and V (N, d), see ``last_states``."""
    return cosine_distance(U.mean(0), V.mean(0))


def point_wise_distance(U: Tensor, V: Tensor) -> Tensor:
    """The mean cosine distance (ARNet 12) of U and V (N, d), of the same images."""
    return cosine_distance(U, V).mean()


class Decoder(Protocol):
    """A captioner with access to its hidden states."""

    pad_id: int

    def encode(self, features: Tensor, lengths: Lengths | None = None) -> Tensor:
        """Features (B, L, d_feature) to memory (B, L, d)."""

    def states(
        self, tokens: Tensor, memory: Tensor, memory_lengths: Lengths | None = None
    ) -> Tensor:
        """Tokens (B, T) to the hidden states (B, T, d) that the vocabulary layer reads."""


@torch.no_grad()
def last_states(
    model: Decoder,
    features: Tensor,
    lengths: Lengths | None,
    tokens: Tensor,
    sizes: Tensor,
    sides: int = 1,
) -> Tensor:
    """The hidden state that emits a caption's last token: (B, d).

    On true captions this is the paper's training mode, on the model's own its inference mode. The
    last token is the end token, or the last within ``max_length``. Of several decoders in turn,
    the states that emit each side's last token are concatenated.

    Args:
        model: the captioner, in its current mode.
        features: (B, L, d_feature).
        lengths: (B,) valid feature rows, or (B, L) True where valid; all if None.
        tokens: (B, T), one caption of each image, the start token first; with several sides in the
            generated order, the pad token where a side has ended.
        sizes: (B,) tokens of each caption, start and end included.
        sides: P, the decoders that take turns.

    Returns:
        (B, P d), the sides in turn.

    Raises:
        ValueError: a caption of less than P + 1 tokens or more than T, a side that has none, or
            sizes that do not fit.
    """
    B, T = tokens.shape
    if sizes.shape != (B,) or ((sizes <= sides) | (sizes > T)).any():
        raise ValueError(f"captions of {sizes.tolist()} tokens, expected {B} of {sides + 1} to {T}")
    # the last token is emitted, not read
    states = model.states(tokens[:, :-1], model.encode(features, lengths), lengths)
    steps = torch.arange(T - 1, device=tokens.device)
    emits = steps < sizes.to(tokens.device)[:, None] - 1  # (B, T - 1)
    if sides > 1:
        emits &= tokens[:, 1:] != model.pad_id
    found = []
    for side in range(sides):
        of_side = emits & (steps % sides == side)
        if not bool(of_side.any(1).all()):
            raise ValueError(f"a caption without a token of side {side}, expected its end")
        last = (steps * of_side).amax(1)
        found.append(states[torch.arange(B, device=states.device), last.to(states.device)])
    return torch.cat(found, -1)
