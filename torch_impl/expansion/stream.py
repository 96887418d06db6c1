"""One stream of an expansion, forward and backward (v1 equations 5, 7-8, v2 3-7).

Shapes: a chunk of b images, L tokens, N expanded rows. M, P, R_fw and R_bw are all (b, L, N), that
is M and R_fw transposed, in float32 at least; values are in their own dtype. P is relu(+M) or
relu(-M); R_fw is P divided by its sums over tokens; R_bw is P divided by its sums over each group's
rows and by the number of groups.

B = R_bw (R_fw V + B_E) associates in two ways: `Mixed` computes W = R_bw R_fw, (b, L, L);
`Expanded` the expanded vectors F = R_fw V + B_E, (b, N, d).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

from torch_impl.common.precision import EPSILON
from torch_impl.expansion.literal import broad_sum


def add_product(x: Tensor, a: Tensor, b: Tensor, alpha: int = 1) -> Tensor:
    """``x + alpha a b`` in place, by an operator that FLOP counters know."""
    if torch.compiler.is_compiling():  # exporters refuse ``out``, compilers reuse memory themselves
        return torch.baddbmm(x, a, b, alpha=alpha)
    return torch.baddbmm(x, a, b, alpha=alpha, out=x)


class Rows(NamedTuple):
    """The groups of the expanded rows; for a dynamic expansion, N_E and whether it is causal.

    The N = L N_E rows of a dynamic expansion are one group. If ``causal``, row (j, n) gathers from
    tokens i <= j, and token i reads the rows with j <= i.
    """

    groups: tuple[int, ...]
    num_expansions: int = 0
    causal: bool = False

    def masks(self, M: Tensor) -> tuple[Tensor, Tensor] | None:
        """0/1 masks (L, N): where row n gathers from token l, and where token l reads row n.

        None if all are 1.
        """
        if not self.causal:
            return None
        L, N = M.shape[1:]
        pairs = M.new_ones(L, L)
        forward_mask, backward_mask = (
            x[:, :, None].expand(-1, -1, self.num_expansions).reshape(L, N)
            for x in (pairs.triu(), pairs.tril())
        )
        return forward_mask, backward_mask

    def sums(self, x: Tensor) -> Tensor:
        """The sums over each group, (b, L, N) to (b, L, |G|)."""
        if len(self.groups) == 1:
            return x.sum(-1, keepdim=True)
        return torch.cat([part.sum(-1, keepdim=True) for part in x.split(self.groups, -1)], -1)

    def scaled(self, x: Tensor, by: Tensor, minus: Tensor | None = None) -> Tensor:
        """(x - minus) * by, out of place, for x (b, L, N) and one number a group, (b, L, |G|)."""
        if len(self.groups) == 1:
            return x * by if minus is None else (x - minus).mul_(by)
        parts = x.split(self.groups, -1)
        if minus is not None:
            parts = [part - number for part, number in zip(parts, minus.split(1, -1), strict=True)]
        scaled = [part * number for part, number in zip(parts, by.split(1, -1), strict=True)]
        return torch.cat(scaled, -1)


class Biases(NamedTuple):
    """The expansion biases B_E: the vectors E_B, or their broad sum with the conditions C.

    The broad sum is not needed for R_bw B_E, only R_bw's sums over j and over n.
    """

    vectors: Tensor
    conditions: Tensor | None = None

    def B_E(self, b: int, out: Tensor | None = None) -> Tensor:
        """(b, N, d), in new memory or in ``out``."""
        if self.conditions is None:
            rows = self.vectors.expand(b, -1, -1)
            return rows.clone() if out is None else out.copy_(rows)
        if out is None:
            return broad_sum(self.conditions, self.vectors)
        by_row = out.unflatten(1, (-1, len(self.vectors)))  # (b, L, N_E, d)
        torch.add(self.conditions[:, :, None], self.vectors, out=by_row)
        return out

    def weights(self, R_bw: Tensor) -> tuple[Tensor, ...]:
        """R_bw B_E's weights of the vectors, (b, L, N); or (b, L, N_E), and of C, (b, L, L)."""
        R_bw = R_bw.to(self.vectors.dtype)
        if self.conditions is None:
            return (R_bw,)
        by_row = R_bw.unflatten(2, (-1, len(self.vectors)))  # (b, L, L, N_E)
        return by_row.sum(2), by_row.sum(3)

    def values(self, of_vectors: Tensor, of_conditions: Tensor | None = None) -> Tensor:
        """R_bw B_E, (b, L, d), from the `weights` of R_bw."""
        values = of_vectors @ self.vectors
        if self.conditions is None or of_conditions is None:
            return values
        return add_product(values, of_conditions, self.conditions)

    def gradient_of_weights(self, dB: Tensor) -> Tensor:
        """dB B_E^T, (b, L, N)."""
        if self.conditions is None:
            return dB @ self.vectors.mT
        of_conditions, of_vectors = torch.bmm(dB, self.conditions.mT), dB @ self.vectors.mT
        by_row = of_conditions[..., None] + of_vectors[:, :, None]  # (b, L, L, N_E)
        return by_row.flatten(2)

    def gradients(
        self, dB: Tensor, of_vectors: Tensor, of_conditions: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """The gradients of the vectors, (N, d) or (N_E, d), and of C, (b, L, d), from `weights`."""
        d_vectors = of_vectors.flatten(0, 1).mT @ dB.flatten(0, 1)
        return d_vectors, None if of_conditions is None else torch.bmm(of_conditions.mT, dB)

    def gradients_of_rows(self, dB_E: Tensor) -> tuple[Tensor, Tensor | None]:
        """The gradients of the vectors and of C from that of B_E, (b, N, d)."""
        if self.conditions is None:
            return dB_E.sum(0), None
        by_row = dB_E.unflatten(1, (-1, len(self.vectors)))  # (b, L, N_E, d)
        return by_row.sum((0, 1)), by_row.sum(2)  # (N_E, d) and (b, L, d)


class StreamTensors(NamedTuple):
    """The batched tensors of one stream; None if not computed yet, or without dropout."""

    V: Tensor
    """(b, L, d)."""
    inverse_rows: Tensor | None = None
    """1 / (sums over tokens + epsilon), (b, 1, N)."""
    inverse_columns: Tensor | None = None
    """1 / (|G| (sums over a group's rows + epsilon)), (b, L, |G|)."""
    keep_F: Tensor | None = None
    """Dropout's mask of expanded values, (b, N, d), or vectors, (b, N, 1)."""
    keep_B: Tensor | None = None
    """Dropout's mask of backward values, (b, L, d)."""
    F: Tensor | None = None
    """The expanded vectors after dropout of values, (b, N, d)."""
    W: Tensor | None = None
    """R_bw R_fw, (b, L, L)."""


class Gradients(NamedTuple):
    """The gradients of a stream's inputs, from the gradient dB of its backward values."""

    M: Tensor
    """Without the stream's sign: that of sign * M."""
    V: Tensor
    vectors: Tensor
    conditions: Tensor | None


class Stream(ABC):
    """One of the two streams of M.

    Args:
        M: (b, L, N), after dropout.
        sign: 1 or -1.
        x: the stream's tensors; inverse sums are computed if None.
        biases: of the expanded rows.
        rows: their groups.
        masks: ``rows.masks``.
        saved: whether x holds what forward saved.
    """

    def __init__(
        self,
        M: Tensor,
        sign: int,
        x: StreamTensors,
        biases: Biases,
        rows: Rows,
        masks: tuple[Tensor, Tensor] | None,
        saved: bool = False,
    ) -> None:
        self.V, self.keep, self.biases, self.rows, self.masks = x.V, x.keep_F, biases, rows, masks
        self.P = torch.relu(M if sign > 0 else -M)  # (b, L, N)
        P_fw, P_bw = (self.P, self.P) if masks is None else (self.P * m for m in masks)
        if x.inverse_rows is None or x.inverse_columns is None:
            by_group = (rows.sums(P_bw) + EPSILON) * len(rows.groups)  # (b, L, |G|)
            self.inverse_sums = 1 / (P_fw.sum(1, keepdim=True) + EPSILON), 1 / by_group
        else:
            self.inverse_sums = x.inverse_rows, x.inverse_columns
        self.R_fw = P_fw * self.inverse_sums[0]  # (b, L, N)
        self.R_bw = rows.scaled(P_bw, self.inverse_sums[1])  # (b, L, N)
        self._multiply(x, saved)

    @abstractmethod
    def _multiply(self, x: StreamTensors, saved: bool) -> None:
        """Compute the first product of the association, unless it is saved."""

    @abstractmethod
    def values(self) -> Tensor:
        """B = R_bw (R_fw V + B_E), (b, L, d)."""

    def minus(self, other: Stream) -> Tensor:
        """B_1 - B_2, (b, L, d)."""
        return self.values() - other.values()

    @abstractmethod
    def gradients(self, dB: Tensor) -> Gradients:
        """The gradients of the inputs from that of `values`, (b, L, d)."""

    def _gradient_of_M(self, dR_fw: Tensor, dR_bw: Tensor) -> Tensor:
        """The gradient of sign * M, (b, L, N), through Psi, its sums included, and the ReLU."""
        r, c = self.inverse_sums
        rho = (dR_fw * self.R_fw).sum(1, keepdim=True)  # (b, 1, N)
        by_rows = dR_fw.sub_(rho).mul_(r)
        gamma = self.rows.sums(dR_bw * self.R_bw) * len(self.rows.groups)  # (b, L, |G|)
        by_columns = self.rows.scaled(dR_bw, c, gamma)
        if self.masks is not None:
            by_rows, by_columns = by_rows.mul_(self.masks[0]), by_columns.mul_(self.masks[1])
        return by_rows.add_(by_columns).mul_(self.P.sign())


class Mixed(Stream):
    """B = W V + R_bw B_E with W = R_bw R_fw; dropout, if any, is of whole expanded vectors."""

    def _multiply(self, x: StreamTensors, saved: bool) -> None:
        self.R_kept = self.R_bw if self.keep is None else self.R_bw * self.keep.mT
        self.bias_weights = self.biases.weights(self.R_kept)
        self.W = torch.bmm(self.R_kept, self.R_fw.mT).to(x.V.dtype) if x.W is None else x.W

    def values(self) -> Tensor:
        return add_product(self.biases.values(*self.bias_weights), self.W, self.V)

    def minus(self, other: Stream) -> Tensor:
        assert isinstance(other, Mixed)
        weights = (x - y for x, y in zip(self.bias_weights, other.bias_weights, strict=True))
        difference = add_product(self.biases.values(*weights), self.W, self.V)
        return add_product(difference, other.W, other.V, -1)

    def gradients(self, dB: Tensor) -> Gradients:
        dW = torch.bmm(dB, self.V.mT).to(self.P.dtype)  # (b, L, L)
        dR_bw = self.biases.gradient_of_weights(dB).to(self.P.dtype)  # (b, L, N)
        dR_bw = add_product(dR_bw, dW, self.R_fw)
        if self.keep is not None:
            dR_bw *= self.keep.mT
        dM = self._gradient_of_M(torch.bmm(dW.mT, self.R_kept), dR_bw)
        d_biases = self.biases.gradients(dB, *self.bias_weights)
        return Gradients(dM, torch.bmm(self.W.mT, dB), *d_biases)


class Expanded(Stream):
    """B = R_bw F with F = R_fw V + B_E; dropout, if any, is of values or of whole vectors."""

    def _multiply(self, x: StreamTensors, saved: bool) -> None:
        F = x.F  # saved by forward, or its output buffer
        if F is None or not saved:
            R_fw = self.R_fw.mT.to(x.V.dtype)
            F = add_product(self.biases.B_E(len(x.V), F), R_fw, x.V)  # (b, N, d)
            F = F if self.keep is None else F.mul_(self.keep)
        self.F = F

    def values(self) -> Tensor:
        return torch.bmm(self.R_bw.to(self.F.dtype), self.F)

    def gradients(self, dB: Tensor) -> Gradients:
        dF = torch.bmm(self.R_bw.to(dB.dtype).mT, dB)  # (b, N, d)
        if self.keep is not None:
            dF *= self.keep
        dR_fw, dR_bw = torch.bmm(self.V, dF.mT), torch.bmm(dB, self.F.mT)  # (b, L, N)
        dM = self._gradient_of_M(dR_fw.to(self.P.dtype), dR_bw.to(self.P.dtype))
        dV = torch.bmm(self.R_fw.to(dF.dtype), dF)
        return Gradients(dM, dV, *self.biases.gradients_of_rows(dF))
