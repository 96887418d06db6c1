"""The expansion mechanism (ExpansionNet v1 equations 3-9, v2 equations 1-9), batched.

Tokens are (B, L, d). The static form expands to N learned vectors, in groups (Block Static
Expansion); the dynamic form to N_E vectors for every token, row (j, n) at j * N_E + n. Stream 1
takes +M and stream 2 takes -M. The length transformation matrix M and its normalisation are kept
in float32 at least: epsilon is 0 in float16.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_impl.padding import Lengths, check_tokens, padding_mask, zero_padding

EPSILON = 1e-9
"""Psi's epsilon (v1 equation 5, v2 equation 4)."""


def static_expansion(
    query_vectors: Tensor,
    bias_vectors: Tensor,
    keys: Tensor,
    values_1: Tensor,
    values_2: Tensor,
    selectors: Tensor,
    groups: Sequence[int],
    mask: Tensor | None = None,
    *,
    dropout: float = 0.0,
    implementation: str = "auto",
) -> Tensor:
    """Static or, with several groups, Block Static Expansion (v1 4-9; v2 2-9).

    Args:
        query_vectors: Q_E, (N, d), the groups one after the other.
        bias_vectors: E_B, (N, d).
        keys: K, (B, L, d).
        values_1: V_1, (B, L, d).
        values_2: V_2, (B, L, d).
        selectors: S, (B, L, d).
        groups: the expansion coefficients G, which add up to N.
        mask: (B, L) booleans, True for valid tokens; padded rows must hold finite values.
        dropout: probability, on M before both streams and on every forward and backward value.
        implementation: "literal", the papers' order of operations; "factored", which multiplies the
            weights of both directions first and has no dropout; or "auto", the cheaper of them.

    Returns:
        (B, L, d), zero in padded rows.

    Raises:
        ValueError: groups that are not positive or do not add up to N, an unknown implementation,
            dropout that the implementation does not have.
    """
    groups = _coefficients(groups)
    N, d = query_vectors.shape
    if sum(groups) != N:
        raise ValueError(f"groups {groups} must add up to {N}, the query vectors")
    # multiply-accumulates: 3 N L d + 2 N L^2 + 2 L^2 d against 5 N L d
    pays = N * keys.shape[1] + keys.shape[1] * d < N * d
    run = _choose(_STATIC, implementation, pays, dropout)
    return run(
        query_vectors,
        bias_vectors,
        keys,
        values_1,
        values_2,
        selectors,
        groups,
        mask,
        dropout,
    )


def dynamic_expansion(
    query_vectors: Tensor,
    bias_vectors: Tensor,
    conditions: Tensor,
    keys: Tensor,
    values_1: Tensor,
    values_2: Tensor,
    selectors: Tensor,
    mask: Tensor | None = None,
    *,
    causal: bool = True,
    dropout: float = 0.0,
    implementation: str = "auto",
) -> Tensor:
    """Dynamic Expansion (v1 3, 5-9; v2 1-8).

    With ``causal`` the expanded row (j, n) gathers from tokens i <= j only, and token i reads back
    rows with j <= i only, so that no output depends on a later token.

    Args:
        query_vectors: q^E, (N_E, d).
        bias_vectors: b^E, (N_E, d).
        conditions: C, (B, L, d).
        keys: K, (B, L, d).
        values_1: V_1, (B, L, d).
        values_2: V_2, (B, L, d).
        selectors: S, (B, L, d).
        mask: (B, L) booleans, True for valid tokens; padded rows must hold finite values.
        causal: the auto-regressive form; else the bidirectional one.
        dropout: probability, on M before both streams and on every forward and backward value.
        implementation: "literal", the papers' order of operations; "factored", which multiplies the
            weights of both directions first and has no dropout; or "auto", the cheaper of them.

    Returns:
        (B, L, d), zero in padded rows.

    Raises:
        ValueError: an unknown implementation, dropout that the implementation does not have.
    """
    run = _choose(_DYNAMIC, implementation, True, dropout)
    return run(
        query_vectors,
        bias_vectors,
        conditions,
        keys,
        values_1,
        values_2,
        selectors,
        mask,
        causal,
        dropout,
    )


def normalise(x: Tensor) -> Tensor:
    """Psi: divide every row by its sum plus epsilon (v1 equation 5, v2 equation 4)."""
    return x / (x.sum(-1, keepdim=True) + EPSILON)


def length_transformation(queries: Tensor, keys: Tensor) -> Tensor:
    """M = Q_E K^T / sqrt(d), (B, N, L), in float32 at least (v1 equation 6, v2 equation 2)."""
    precise = torch.promote_types(keys.dtype, torch.float32)
    with torch.autocast(keys.device.type, enabled=False):
        return queries.to(precise) @ keys.to(precise).mT / math.sqrt(keys.shape[-1])


def _static_literal(
    query_vectors: Tensor,
    bias_vectors: Tensor,
    keys: Tensor,
    values_1: Tensor,
    values_2: Tensor,
    selectors: Tensor,
    groups: Sequence[int],
    mask: Tensor | None,
    dropout: float,
) -> Tensor:
    M = length_transformation(query_vectors, keys)
    visible = None if mask is None else mask[:, None, :]
    readers = None if mask is None else mask[:, :, None]
    return _streams(
        M, values_1, values_2, bias_vectors, selectors, groups, visible, readers, dropout
    )


def _dynamic_literal(
    query_vectors: Tensor,
    bias_vectors: Tensor,
    conditions: Tensor,
    keys: Tensor,
    values_1: Tensor,
    values_2: Tensor,
    selectors: Tensor,
    mask: Tensor | None,
    causal: bool,
    dropout: float,
) -> Tensor:
    length, num_expansions = keys.shape[1], len(query_vectors)
    E_Q = broad_sum(conditions, query_vectors)
    E_B = broad_sum(conditions, bias_vectors)
    M = length_transformation(E_Q, keys)
    pairs = None if mask is None else mask[:, :, None] & mask[:, None, :]
    if causal:
        # symmetric in row and column: both directions let j see i <= j
        earlier = torch.ones(length, length, dtype=torch.bool, device=keys.device).tril()
        pairs = earlier[None] if pairs is None else pairs & earlier
    visible = readers = None
    if pairs is not None:
        visible = pairs.repeat_interleave(num_expansions, dim=1)
        readers = pairs.repeat_interleave(num_expansions, dim=2)
    groups = (length * num_expansions,)
    return _streams(M, values_1, values_2, E_B, selectors, groups, visible, readers, dropout)


def broad_sum(conditions: Tensor, vectors: Tensor) -> Tensor:
    """c_j + e_n as rows j * N_E + n: (B, L, d) and (N_E, d) to (B, L * N_E, d) (v1 3, v2 1)."""
    return (conditions[:, :, None] + vectors.to(conditions.dtype)).flatten(1, 2)


def _streams(
    M: Tensor,
    values_1: Tensor,
    values_2: Tensor,
    E_B: Tensor,
    selectors: Tensor,
    groups: Sequence[int],
    visible: Tensor | None,
    readers: Tensor | None,
    dropout: float,
) -> Tensor:
    """Both streams, forward and back, and their selection (v1 7-9, v2 3-8).

    ``visible`` says which tokens an expanded row gathers from, (., N, L); ``readers`` which
    expanded rows a token reads back, (., L, N); None is all.
    """
    M = F.dropout(M, dropout)
    E_B = E_B.to(values_1.dtype)
    backward = []
    for signed, V in ((M, values_1), (-M, values_2)):
        P = F.relu(signed)
        R_fw = normalise(_only(P, visible))
        F_fw = F.dropout(R_fw.to(V.dtype) @ V + E_B, dropout)
        transposed = torch.split(_only(P.mT, readers), list(groups), dim=-1)
        R_bw = torch.cat([normalise(group) for group in transposed], dim=-1) / len(groups)
        backward.append(F.dropout(R_bw.to(V.dtype) @ F_fw, dropout))
    gate = selectors.sigmoid()
    return gate * backward[0] + (1 - gate) * backward[1]


def _only(x: Tensor, allowed: Tensor | None) -> Tensor:
    return x if allowed is None else x.masked_fill(~allowed, 0)


def _static_factored(
    query_vectors: Tensor,
    bias_vectors: Tensor,
    keys: Tensor,
    values_1: Tensor,
    values_2: Tensor,
    selectors: Tensor,
    groups: Sequence[int],
    mask: Tensor | None,
    dropout: float,
) -> Tensor:
    M = length_transformation(query_vectors, keys)
    visible = None if mask is None else mask[:, None, :]

    def read(R_bw: Tensor) -> Tensor:
        return R_bw @ bias_vectors.to(R_bw.dtype)

    return _mixed(M, values_1, values_2, selectors, groups, visible, visible, read)


def _dynamic_factored(
    query_vectors: Tensor,
    bias_vectors: Tensor,
    conditions: Tensor,
    keys: Tensor,
    values_1: Tensor,
    values_2: Tensor,
    selectors: Tensor,
    mask: Tensor | None,
    causal: bool,
    dropout: float,
) -> Tensor:
    """Row (j, n) of M is a sum of c_j k_i and q_n k_i, so that no expanded vector is ever made."""
    length, num_expansions = keys.shape[1], len(query_vectors)
    A = length_transformation(conditions, keys)
    P = length_transformation(query_vectors, keys)
    M = (A[:, :, None] + P[:, None]).flatten(1, 2)
    visible = readers = None
    if mask is not None or causal:
        pairs = keys.new_ones(length, length, dtype=torch.bool)[None]
        if mask is not None:
            pairs = mask[:, :, None] & mask[:, None, :]
        fw, bw = (pairs.tril(), pairs.triu()) if causal else (pairs, pairs)
        visible, readers = (x.repeat_interleave(num_expansions, dim=1) for x in (fw, bw))

    def read(R_bw: Tensor) -> Tensor:
        by_row = R_bw.unflatten(-1, (length, num_expansions))
        C, b = conditions.to(R_bw.dtype), bias_vectors.to(R_bw.dtype)
        return by_row.sum(-1) @ C + by_row.sum(-2) @ b

    groups = (length * num_expansions,)
    return _mixed(M, values_1, values_2, selectors, groups, visible, readers, read)


def _mixed(
    M: Tensor,
    values_1: Tensor,
    values_2: Tensor,
    selectors: Tensor,
    groups: Sequence[int],
    visible: Tensor | None,
    readers: Tensor | None,
    read: Callable[[Tensor], Tensor],
) -> Tensor:
    """Both streams and their selection by W = R_bw R_fw, (B, L, L), in place of the expansion.

    ``visible`` and ``readers`` say which tokens an expanded row gathers from and is read back by,
    both (., N, L); ``read`` gives R_bw E_B.
    """
    backward = []
    for signed, V in ((M, values_1), (-M, values_2)):
        P = F.relu(signed)
        R_fw = normalise(_only(P, visible))
        columns = torch.split(_only(P, readers), list(groups), dim=1)
        R_bw = torch.cat([normalise(group.mT) for group in columns], dim=-1) / len(groups)
        with torch.autocast(V.device.type, enabled=False):
            W = R_bw @ R_fw
        backward.append(W.to(V.dtype) @ V + read(R_bw.to(V.dtype)))
    gate = selectors.sigmoid()
    return gate * backward[0] + (1 - gate) * backward[1]


Forms = dict[str, Callable[..., Tensor]]
_STATIC: Forms = {"literal": _static_literal, "factored": _static_factored}
_DYNAMIC: Forms = {"literal": _dynamic_literal, "factored": _dynamic_factored}


def _known(forms: Forms, name: str) -> None:
    if name != "auto" and name not in forms:
        raise ValueError(
            f"unknown implementation {name!r}, expected one of auto, {', '.join(forms)}"
        )


def _choose(forms: Forms, name: str, pays: bool, dropout: float) -> Callable[..., Tensor]:
    """The form of that name; of "auto" the factored one where it ``pays`` and can be had."""
    _known(forms, name)
    if name == "auto":
        name = "factored" if pays and not dropout else "literal"
    if name == "factored" and dropout:
        raise ValueError("the factored implementation has no dropout, expected literal or auto")
    return forms[name]


def positive(value: int, what: str) -> int:
    """``value`` as an int above 0, else ValueError naming ``what``."""
    number = operator.index(value)
    if number < 1:
        raise ValueError(f"{what} must be at least 1, not {number}")
    return number


def _coefficients(groups: Sequence[int]) -> tuple[int, ...]:
    if len(groups) == 0:
        raise ValueError("groups must name at least one expansion coefficient")
    return tuple(positive(size, "an expansion coefficient of groups") for size in groups)


class StaticExpansion(nn.Module):
    """Block Static Expansion as a layer with its projections (v2 equations 2-9).

    Args:
        d_model: d.
        groups: the expansion coefficients G; one number is one group.
        dropout: see ``static_expansion``; active in training mode only.
        implementation: see ``static_expansion``; may be set later.

    Raises:
        ValueError: no group, a group or d_model below 1, an unknown implementation.
    """

    def __init__(
        self,
        d_model: int,
        groups: int | Sequence[int],
        *,
        dropout: float = 0.0,
        implementation: str = "auto",
    ) -> None:
        super().__init__()
        self.d_model = positive(d_model, "d_model")
        self.groups = _coefficients((groups,) if isinstance(groups, int) else groups)
        _known(_STATIC, implementation)
        self.implementation = implementation
        self.dropout = nn.Dropout(dropout).p
        self.query_vectors = nn.Parameter(torch.empty(sum(self.groups), d_model))
        self.bias_vectors = nn.Parameter(torch.empty(sum(self.groups), d_model))
        self.key = nn.Linear(d_model, d_model)
        self.value_1 = nn.Linear(d_model, d_model)
        self.value_2 = nn.Linear(d_model, d_model)
        self.selector = nn.Linear(d_model, d_model)
        nn.init.xavier_uniform_(self.query_vectors)
        nn.init.xavier_uniform_(self.bias_vectors)

    def forward(self, x: Tensor, lengths: Lengths | None = None) -> Tensor:
        """(B, L, d) to (B, L, d), zero in padded rows.

        Raises:
            ValueError: x is not (B, L, d_model), lengths do not fit it, unknown implementation.
        """
        check_tokens(x, self.d_model)
        mask = padding_mask(lengths, x)
        x = zero_padding(x, mask)
        return static_expansion(
            self.query_vectors,
            self.bias_vectors,
            self.key(x),
            self.value_1(x),
            self.value_2(x),
            self.selector(x),
            self.groups,
            mask,
            dropout=self.dropout if self.training else 0.0,
            implementation=self.implementation,
        )

    def extra_repr(self) -> str:
        """The settings that the parameters' shapes do not show."""
        return f"groups={self.groups}, dropout={self.dropout}, {self.implementation}"


class DynamicExpansion(nn.Module):
    """Dynamic Expansion as a layer with its projections (v1 equations 3, 5-9; v2 1-8).

    Args:
        d_model: d.
        num_expansions: N_E, the expanded vectors for each token.
        causal: the auto-regressive form; else the bidirectional one.
        dropout: see ``dynamic_expansion``; active in training mode only.
        implementation: see ``dynamic_expansion``; may be set later.

    Raises:
        ValueError: d_model or num_expansions below 1, an unknown implementation.
    """

    def __init__(
        self,
        d_model: int,
        num_expansions: int,
        *,
        causal: bool = True,
        dropout: float = 0.0,
        implementation: str = "auto",
    ) -> None:
        super().__init__()
        self.d_model = positive(d_model, "d_model")
        self.num_expansions = positive(num_expansions, "num_expansions")
        self.causal = causal
        _known(_DYNAMIC, implementation)
        self.implementation = implementation
        self.dropout = nn.Dropout(dropout).p
        self.query_vectors = nn.Parameter(torch.empty(num_expansions, d_model))
        self.bias_vectors = nn.Parameter(torch.empty(num_expansions, d_model))
        self.condition = nn.Linear(d_model, d_model)
        self.key = nn.Linear(d_model, d_model)
        self.value_1 = nn.Linear(d_model, d_model)
        self.value_2 = nn.Linear(d_model, d_model)
        self.selector = nn.Linear(d_model, d_model)
        nn.init.xavier_uniform_(self.query_vectors)
        nn.init.xavier_uniform_(self.bias_vectors)

    def forward(self, x: Tensor, lengths: Lengths | None = None) -> Tensor:
        """(B, L, d) to (B, L, d), zero in padded rows.

        Raises:
            ValueError: x is not (B, L, d_model), lengths do not fit it, unknown implementation.
        """
        check_tokens(x, self.d_model)
        mask = padding_mask(lengths, x)
        x = zero_padding(x, mask)
        return dynamic_expansion(
            self.query_vectors,
            self.bias_vectors,
            self.condition(x),
            self.key(x),
            self.value_1(x),
            self.value_2(x),
            self.selector(x),
            mask,
            causal=self.causal,
            dropout=self.dropout if self.training else 0.0,
            implementation=self.implementation,
        )

    def extra_repr(self) -> str:
        """The settings that the parameters' shapes do not show."""
        return (
            f"num_expansions={self.num_expansions}, causal={self.causal}, "
            f"dropout={self.dropout}, {self.implementation}"
        )
