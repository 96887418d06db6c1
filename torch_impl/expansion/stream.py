"""One stream of an expansion, there and back, and its gradients by hand.

Everything of M's shape is (b, L, N) for a slice of b images, tokens first, and in float32 at least;
values and what is read of them are in the dtype of the values. P is relu(+M) or relu(-M), R_fw
its rows and R_bw its columns normalised, within each group (v1 equations 5, 7-8, v2 3-7).

The products B = R_bw (R_fw V + E_B) associate in two ways: ``Mixing`` makes W = R_bw R_fw, (b, L,
L), ``Expanding`` the expanded vectors F = R_fw V + E_B, (b, N, d).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torch_impl.common.precision import EPSILON
from torch_impl.expansion.literal import broad_sum


def add_product(x: Tensor, a: Tensor, b: Tensor, alpha: int = 1) -> Tensor:
    """``x`` with ``alpha`` times the product added in place, in a way that FLOP counters know."""
    if torch.compiler.is_compiling():  # an exporter refuses it, a compiler does it by itself
        return torch.baddbmm(x, a, b, alpha=alpha)
    return torch.baddbmm(x, a, b, alpha=alpha, out=x)


class Rows(NamedTuple):
    """What the expanded rows are.

    The rows of a dynamic expansion, N_E for each token, are one group. If ``causal``, row (j, n)
    gathers from tokens i <= j, and token i reads the rows with j <= i.
    """

    groups: tuple[int, ...]
    num_expansions: int = 0
    causal: bool = False

    def masks(self, M: Tensor) -> tuple[Tensor, Tensor] | None:
        """1 where a row gathers from a token, and where the token reads it, (L, N); None is all."""
        if not self.causal:
            return None
        L, N = M.shape[1:]
        pairs = M.new_ones(L, L)
        later, earlier = (
            x[:, :, None].expand(-1, -1, self.num_expansions).reshape(L, N)
            for x in (pairs.triu(), pairs.tril())
        )
        return later, earlier

    def sums(self, x: Tensor) -> Tensor:
        """The sums over each group, (b, L, N) to (b, L, |G|)."""
        if len(self.groups) == 1:
            return x.sum(-1, keepdim=True)
        return torch.cat([part.sum(-1, keepdim=True) for part in x.split(self.groups, -1)], -1)

    def scaled(self, x: Tensor, by: Tensor, less: Tensor | None = None) -> Tensor:
        """A new (x - less) * by, for x (b, L, N) and numbers (b, L, |G|) of each group."""
        if len(self.groups) == 1:
            return x * by if less is None else (x - less).mul_(by)
        parts = x.split(self.groups, -1)
        if less is not None:
            parts = [part - number for part, number in zip(parts, less.split(1, -1), strict=True)]
        scaled = [part * number for part, number in zip(parts, by.split(1, -1), strict=True)]
        return torch.cat(scaled, -1)


class Biases(NamedTuple):
    """The expansion biases: E_B itself, or the broad sum of conditions C and vectors b_n.

    Of the sum's N = L N_E rows nothing is read but two parts, over n and over j.
    """

    vectors: Tensor
    conditions: Tensor | None = None

    def rows(self) -> Tensor:
        """E_B, (N, d) or (b, N, d)."""
        return self.vectors if self.conditions is None else broad_sum(self.conditions, self.vectors)

    def shares(self, R_bw: Tensor) -> tuple[Tensor, ...]:
        """How much of the vectors each token reads, (b, L, .), and of the conditions."""
        R_bw = R_bw.to(self.vectors.dtype)
        if self.conditions is None:
            return (R_bw,)
        by_row = R_bw.unflatten(2, (-1, len(self.vectors)))
        return by_row.sum(2), by_row.sum(3)

    def read(self, of_vectors: Tensor, of_conditions: Tensor | None = None) -> Tensor:
        """R_bw E_B of its ``shares``, (b, L, d)."""
        read = of_vectors @ self.vectors
        if self.conditions is None or of_conditions is None:
            return read
        return add_product(read, of_conditions, self.conditions)

    def scores(self, dB: Tensor) -> Tensor:
        """dB E_B^T, (b, L, N)."""
        if self.conditions is None:
            return dB @ self.vectors.mT
        of_conditions, of_vectors = torch.bmm(dB, self.conditions.mT), dB @ self.vectors.mT
        by_row = of_conditions[..., None] + of_vectors[:, :, None]
        return by_row.flatten(2)

    def gradients(
        self, dB: Tensor, of_vectors: Tensor, of_conditions: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """R_bw^T dB of the ``shares`` of R_bw, as it falls on the vectors and the conditions."""
        d_vectors = of_vectors.flatten(0, 1).mT @ dB.flatten(0, 1)
        return d_vectors, None if of_conditions is None else torch.bmm(of_conditions.mT, dB)

    def gradients_of_rows(self, dF: Tensor) -> tuple[Tensor, Tensor | None]:
        """What falls on E_B (b, N, d), as it falls on the vectors and the conditions."""
        if self.conditions is None:
            return dF.sum(0), None
        by_row = dF.unflatten(1, (-1, len(self.vectors)))
        return by_row.sum((0, 1)), by_row.sum(2)


class Gradients(NamedTuple):
    """Of a stream, for the gradient dB of its backward values."""

    M: Tensor
    """As of P: the stream's sign is not in it."""
    V: Tensor
    vectors: Tensor
    conditions: Tensor | None


class Stream(ABC):
    """The stream of ``sign`` and values V (b, L, d) of M (b, L, N).

    Args:
        M: what dropout has left of it.
        sign: 1 or -1.
        V: (b, L, d).
        biases: of the expanded rows.
        rows: their groups.
        masks: ``rows.masks``.
        inverse_sums: 1 / (sums + epsilon) over tokens, (b, 1, N), and over each group, these by
            the number of groups too, (b, L, |G|); they are made if None.
        kept: True where dropout leaves an expanded value, (b, N, d), or vector, (b, N, 1).
    """

    def __init__(
        self,
        M: Tensor,
        sign: int,
        V: Tensor,
        biases: Biases,
        rows: Rows,
        masks: tuple[Tensor, Tensor] | None,
        inverse_sums: tuple[Tensor, Tensor] | None = None,
        kept: Tensor | None = None,
    ) -> None:
        self.V, self.biases, self.rows, self.masks, self.kept = V, biases, rows, masks, kept
        self.P = torch.relu(M if sign > 0 else -M)
        gathering, reading = (self.P, self.P) if masks is None else (self.P * x for x in masks)
        if inverse_sums is None:
            by_group = (rows.sums(reading) + EPSILON) * len(rows.groups)
            inverse_sums = 1 / (gathering.sum(1, keepdim=True) + EPSILON), 1 / by_group
        self.inverse_sums = inverse_sums
        self.R_fw = gathering * inverse_sums[0]
        self.R_bw = rows.scaled(reading, inverse_sums[1])

    @abstractmethod
    def values(self) -> Tensor:
        """B = R_bw (R_fw V + E_B), (b, L, d)."""

    @abstractmethod
    def gradients(self, dB: Tensor) -> Gradients:
        """The gradients for that of ``values``."""

    def _of_scores(self, dR_fw: Tensor, dR_bw: Tensor) -> Tensor:
        """The gradient by P for those by the weights."""
        r, c = self.inverse_sums
        rho = (dR_fw * self.R_fw).sum(1, keepdim=True)
        by_rows = dR_fw.sub_(rho).mul_(r)
        gamma = self.rows.sums(dR_bw * self.R_bw) * len(self.rows.groups)
        by_columns = self.rows.scaled(dR_bw, c, gamma)
        if self.masks is not None:
            by_rows, by_columns = by_rows.mul_(self.masks[0]), by_columns.mul_(self.masks[1])
        return by_rows.add_(by_columns).mul_(self.P.sign())


class Mixing(Stream):
    """By W = R_bw R_fw, (b, L, L): of each row's vector all is kept or nothing.

    Args:
        W: where it is known; made if None.
    """

    def __init__(self, *arguments: Any, W: Tensor | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.reading = self.R_bw if self.kept is None else self.R_bw * self.kept.mT
        self.shares = self.biases.shares(self.reading)
        self.W = torch.bmm(self.reading, self.R_fw.mT).to(self.V.dtype) if W is None else W

    def values(self) -> Tensor:
        """W V + R_bw E_B."""
        return add_product(self.biases.read(*self.shares), self.W, self.V)

    def less(self, other: Mixing) -> Tensor:
        """These values less those of the other stream; the biases are read at once."""
        shares = (x - y for x, y in zip(self.shares, other.shares, strict=True))
        mixed = add_product(self.biases.read(*shares), self.W, self.V)
        return add_product(mixed, other.W, other.V, -1)

    def gradients(self, dB: Tensor) -> Gradients:
        """Backwards through W and what is read of the biases."""
        dW = torch.bmm(dB, self.V.mT).to(self.P.dtype)
        dR_bw = add_product(self.biases.scores(dB).to(self.P.dtype), dW, self.R_fw)
        if self.kept is not None:
            dR_bw *= self.kept.mT
        dM = self._of_scores(torch.bmm(dW.mT, self.reading), dR_bw)
        return Gradients(dM, torch.bmm(self.W.mT, dB), *self.biases.gradients(dB, *self.shares))


class Expanding(Stream):
    """By the expanded vectors F, (b, N, d), of which any value may be dropped.

    Args:
        F: where they are ``known``, or go; a new place if None.
    """

    def __init__(
        self, *arguments: Any, F: Tensor | None = None, known: bool = False, **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        if F is None or not known:
            E_B = self.biases.rows().expand(len(self.V), -1, -1)
            F = torch.baddbmm(E_B, self.R_fw.mT.to(self.V.dtype), self.V, out=F)
            F = F if self.kept is None else F.mul_(self.kept)
        self.F = F

    def values(self) -> Tensor:
        """R_bw F."""
        return torch.bmm(self.R_bw.to(self.F.dtype), self.F)

    def gradients(self, dB: Tensor) -> Gradients:
        """Backwards through the two products."""
        dF = torch.bmm(self.R_bw.to(dB.dtype).mT, dB)
        if self.kept is not None:
            dF *= self.kept
        dR_fw, dR_bw = torch.bmm(self.V, dF.mT), torch.bmm(dB, self.F.mT)
        dM = self._of_scores(dR_fw.to(self.P.dtype), dR_bw.to(self.P.dtype))
        dV = torch.bmm(self.R_fw.to(dF.dtype), dF)
        return Gradients(dM, dV, *self.biases.gradients_of_rows(dF))
