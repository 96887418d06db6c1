"""LSTM layers, unidirectional and bidirectional, on ragged batches."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from torch_impl.common.checks import one_of, positive
from torch_impl.common.dropout import keep_mask, keep_scale
from torch_impl.common.padding import (
    Lengths,
    can_check_values,
    check_tokens,
    padding_mask,
    zero_padding,
)
from torch_impl.recurrent.cell import (
    DROPPED,
    Masks,
    State,
    cell,
    unroll,
)
from torch_impl.recurrent.loop import lstm_loop

IMPLEMENTATIONS = ("auto", "literal", "custom_backward", "library")


class LSTM(nn.Module):
    """An LSTM (ARNet 1, 2) with the papers' options.

    The rows of ``weight_x`` (G d, d_x), ``weight_h`` (G d, d) and ``bias`` (G d) are those of the
    gates i, f, o, r with a read-only unit, g; all are initialised uniformly within 1 / sqrt(d).

    Args:
        input_size: d_x.
        hidden_size: d.
        bias: whether the gates have one.
        zoneout: the probabilities that a unit of the memory cell and of the hidden state keeps its
            previous value (Krueger et al., 2017); their expectation in evaluation.
        recurrent_dropout: its probability.
        recurrent_dropout_of: "state", units of h_{t-1} in the gates; or "update", units of g_t
            (Semeniuta et al., 2016).
        read_only: a fifth gate r, of the read-only unit (read-only 16, 17).
        squash: whether h_t = o * tanh(c_t), or o * c_t (read-only 10).
        implementation: "literal", a sequential loop under autograd; "custom_backward", one with a
            custom backward; "library", PyTorch's LSTM, cuDNN's on a GPU (in TF32 unless
            ``torch.backends.cudnn.allow_tf32`` is off), for right-padded batches
            without these options; "auto", "library" where possible, else "custom_backward". May be
            set later.

    Raises:
        ValueError: a size below 1, a probability out of range, an unknown
            ``recurrent_dropout_of`` or implementation, or "library" with an option.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        bias: bool = True,
        zoneout: tuple[float, float] = (0.0, 0.0),
        recurrent_dropout: float = 0.0,
        recurrent_dropout_of: str = "state",
        read_only: bool = False,
        squash: bool = True,
        implementation: str = "auto",
    ) -> None:
        super().__init__()
        self.input_size = positive(input_size, "input_size")
        self.hidden_size = positive(hidden_size, "hidden_size")
        for rate in zoneout:
            if not 0 <= rate <= 1:
                raise ValueError(f"zoneout is {zoneout}, expected probabilities in [0, 1]")
        if not 0 <= recurrent_dropout < 1:
            raise ValueError(f"recurrent_dropout is {recurrent_dropout}, expected in [0, 1)")
        self.zoneout, self.recurrent_dropout = zoneout, recurrent_dropout
        self.recurrent_dropout_of = one_of(recurrent_dropout_of, "recurrent_dropout_of", DROPPED)
        self.read_only, self.squash = read_only, squash
        self.implementation = implementation
        rows = (5 if read_only else 4) * hidden_size
        self.weight_x = nn.Parameter(torch.empty(rows, input_size))
        self.weight_h = nn.Parameter(torch.empty(rows, hidden_size))
        self.bias = nn.Parameter(torch.empty(rows)) if bias else None
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(hidden_size**-0.5), hidden_size**-0.5)
        self._choose(None, self.masks(1, 1))

    def zero_state(self, batch: int) -> State:
        """h and c of zeros, (B, d)."""
        zeros = self.weight_h.new_zeros(batch, self.hidden_size)
        return State(zeros, zeros)

    def masks(self, steps: int, batch: int) -> Masks:
        """The masks of all steps, (T, B, d): random in training, the rates in evaluation."""
        shape = steps, batch, self.hidden_size
        weight = self.weight_h

        def zoneout(rate: float) -> Tensor | None:
            if not rate:
                return None
            if not self.training:
                return weight.new_full((1, 1, 1), rate).expand(steps, batch, 1)
            return (~keep_mask(shape, rate, weight.device)).to(weight.dtype)

        masks, p = Masks(zoneout(self.zoneout[0]), zoneout(self.zoneout[1])), self.recurrent_dropout
        if not (self.training and p):
            return masks
        factors = keep_mask(shape, p, weight.device).to(weight.dtype) * keep_scale(p)
        if self.recurrent_dropout_of == "state":
            return masks._replace(h_dropout=factors)
        return masks._replace(g_dropout=factors)

    def step(
        self, x: Tensor, state: State, read: Tensor | None = None, masks: Masks | None = None
    ) -> State:
        """The state after x (B, d_x).

        Args:
            x: the input.
            state: (B, d) each.
            read: (B, d), the read-only unit's input.
            masks: of this step; ``self.masks(1, B)`` if None.
        """
        masks = self.masks(1, len(x)).at(0) if masks is None else masks
        inputs = nn.functional.linear(x, self.weight_x, self.bias)
        return cell(inputs, state, self.weight_h, read, masks, self.squash)

    def forward(
        self,
        xs: Tensor,
        state: State | None = None,
        lengths: Lengths | None = None,
        *,
        read: Tensor | None = None,
        masks: Masks | None = None,
    ) -> tuple[Tensor, State]:
        """The whole sequence (ARNet 1); a padded step does not change the state.

        Args:
            xs: (B, T, d_x), T >= 1.
            state: before the first step; zeros if None.
            lengths: (B,) steps of each, or (B, T) True for valid steps; all if None.
            read: (B, T, d), the read-only unit's inputs.
            masks: (T, B, d) each; ``self.masks(T, B)`` if None.

        Returns:
            h of every step (B, T, d), zero in padding, and the last state of each.

        Raises:
            ValueError: xs are not (B, T, d_x) or have no steps, lengths do not fit them, ``read``
                is not (B, T, d), missing with a read-only unit or given without one, "library" for
                a call that it cannot run.
        """
        check_tokens(xs, self.input_size, "xs")
        B, T, _ = xs.shape
        if not T:
            raise ValueError(f"xs has shape {tuple(xs.shape)}, expected at least 1 step")
        self._check_read(read, (B, T, self.hidden_size))
        mask = padding_mask(lengths, xs)
        steps = zero_padding(xs, mask).to(self.weight_x.dtype).transpose(0, 1)  # (T, B, d_x)
        state = self.zero_state(B) if state is None else state
        masks = self.masks(T, B) if masks is None else masks
        implementation = self._choose(mask, masks)
        if implementation == "library":
            hs, state = self._library(steps, state, mask)
            return hs.transpose(0, 1), state
        if mask is not None:
            padding = ~mask.T[..., None]  # (T, B, 1)
            masks = masks._replace(
                z_c=_held(masks.z_c, padding, steps), z_h=_held(masks.z_h, padding, steps)
            )
        weights = self.weight_x, self.weight_h, self.bias
        read = None if read is None else zero_padding(read, mask).transpose(0, 1)
        if implementation == "literal":
            hs, state = unroll(steps, state, *weights, read, masks, self.squash)
        else:
            tensors = [steps, *weights, *state, read, *masks]
            graded = any(x is not None and x.requires_grad for x in tensors)
            save = torch.is_grad_enabled() and graded
            hs, c, *_ = lstm_loop(steps, *weights, *state, read, *masks, self.squash, save)
            state = State(hs[-1], c)
        return zero_padding(hs.transpose(0, 1), mask), state

    def _check_read(self, read: Tensor | None, shape: tuple[int, ...]) -> None:
        if (read is None) == self.read_only:
            raise ValueError(
                "the LSTM has a read-only unit, expected its inputs `read`"
                if self.read_only
                else "the LSTM has no read-only unit, expected no `read`"
            )
        if read is not None and read.shape != shape:
            raise ValueError(f"read has shape {tuple(read.shape)}, expected {shape}")

    def _choose(self, mask: Tensor | None, masks: Masks) -> str:
        """The implementation for this padding and these masks."""
        one_of(self.implementation, "implementation", IMPLEMENTATIONS)
        if self.implementation in ("literal", "custom_backward"):
            return self.implementation
        masked = any(x is not None for x in masks)
        changed = masked or self.read_only or not self.squash
        if self.implementation == "auto":
            # PyTorch's LSTM cannot be compiled, and to pack a batch the host must read the mask
            packable = mask is None or (can_check_values(mask) and _is_prefix(mask))
            # under autocast on a CPU it needs 16-bit instructions that not every CPU has
            autocast = self.weight_h.device.type == "cpu" and torch.is_autocast_enabled("cpu")
            possible = packable and not (changed or autocast or torch.compiler.is_compiling())
            return "library" if possible else "custom_backward"
        if changed:
            raise ValueError(
                "the library's LSTM has no zoneout, recurrent dropout, read-only unit or m = o c"
            )
        if mask is not None and not _is_prefix(mask):
            raise ValueError("the library's LSTM pads at the end only, expected lengths")
        return "library"

    def _library(self, xs: Tensor, state: State, mask: Tensor | None) -> tuple[Tensor, State]:
        """``forward`` on xs (T, B, d_x) by PyTorch's LSTM, whose gates are i, f, g, o."""
        ordered = []
        for weight in (self.weight_x, self.weight_h, self.bias):
            if weight is not None:
                i, f, o, g = weight.chunk(4)
                ordered.append(torch.cat([i, f, g, o]))
        if self.bias is not None:
            ordered.append(torch.zeros_like(self.bias))
        before = [x.unsqueeze(0).contiguous() for x in state]  # (1, B, d)
        options = self.bias is not None, 1, 0.0, self.training, False
        if mask is None or not len(mask):  # an empty batch cannot be packed
            hs, h, c = torch.lstm(xs, before, ordered, *options, False)
            return hs, State(h[0], c[0])
        # nor can an empty sequence: it takes one step, which is discarded
        lengths = mask.sum(1)
        packed = pack_padded_sequence(xs, lengths.clamp(min=1).cpu(), enforce_sorted=False)
        order = packed.sorted_indices
        assert order is not None and packed.unsorted_indices is not None
        before = [x.index_select(1, order) for x in before]
        data, h, c = torch.lstm(packed.data, packed.batch_sizes, before, ordered, *options)
        hs, _ = pad_packed_sequence(packed._replace(data=data), total_length=len(xs))
        after = (x[0].index_select(0, packed.unsorted_indices) for x in (h, c))
        nonempty = (lengths > 0)[:, None]
        h, c = (new.where(nonempty, old) for new, old in zip(after, state, strict=True))
        return zero_padding(hs, mask.T), State(h, c)


class BidirectionalLSTM(nn.Module):
    """One LSTM forwards, one backwards, their states concatenated: ``hidden_size`` units each.

    Keywords are those of ``LSTM``.
    """

    def __init__(self, input_size: int, hidden_size: int, **options: Any) -> None:
        super().__init__()
        self.forwards = LSTM(input_size, hidden_size, **options)
        self.backwards = LSTM(input_size, hidden_size, **options)

    def forward(self, xs: Tensor, lengths: Lengths | None = None) -> tuple[Tensor, State]:
        """xs (B, T, d_x) to h of every step (B, T, 2 d), zero in padding, and the last state.

        The last state (B, 2 d) is that of both directions, after the last and the first step.

        Raises:
            ValueError: as ``LSTM.forward``.
        """
        mask = padding_mask(lengths, xs)
        # backwards, padding comes first and leaves the zero state unchanged
        flipped = None if mask is None else mask.flip(1)
        ahead, last = self.forwards(xs, lengths=mask)
        back, first = self.backwards(xs.flip(1), lengths=flipped)
        state = State(*(torch.cat(pair, -1) for pair in zip(last, first, strict=True)))
        return torch.cat([ahead, back.flip(1)], -1), state


def _held(z: Tensor | None, padding: Tensor, like: Tensor) -> Tensor:
    """Zoneout's ``z`` with 1 in padding (T, B, 1), so that padded steps keep the state."""
    return padding.to(like.dtype) if z is None else z.masked_fill(padding, 1)


def _is_prefix(mask: Tensor) -> bool:
    """Whether the mask (B, T) is right-padded."""
    return not bool((~mask[:, :-1] & mask[:, 1:]).any())
