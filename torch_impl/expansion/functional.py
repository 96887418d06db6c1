"""The expansion operators, and the choice of their implementation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_impl import kernels
from torch_impl.common.checks import one_of, positive
from torch_impl.expansion import factored, literal
from torch_impl.expansion.literal import Operands

IMPLEMENTATIONS = ("auto", "literal", "factored", "fused")
DROPOUTS = ("values", "vectors")


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
    key_projection: tuple[Tensor, Tensor] | None = None,
    dropout: float = 0.0,
    dropout_of: str = "values",
    implementation: str = "auto",
) -> Tensor:
    """Static or, with several groups, Block Static Expansion (v1 4-9; v2 2-9).

    Args:
        query_vectors: E_Q, (N, d), the groups one after the other.
        bias_vectors: E_B, (N, d).
        keys: K, (B, L, d); or tokens, with ``key_projection``.
        values_1: V_1, (B, L, d).
        values_2: V_2, (B, L, d).
        selectors: S, (B, L, d).
        groups: the expansion coefficients G, which add up to N.
        mask: (B, L) booleans, True for valid tokens; padded rows must hold finite values.
        key_projection: the weight (d, d) and bias (d,) of a linear layer, folded into the expansion
            queries where they are fewer than the batch's tokens.
        dropout: probability; on M before both streams, on the expanded and on the backward values.
        dropout_of: "values", as run; or "vectors", which drops whole expanded vectors, another
            regulariser.
        implementation: "literal", the papers' order of operations; "factored", the same function
            in fewer operations and bytes, with a first derivative only; "fused", Triton kernels
            (``torch_impl.kernels``), opt-in; or "auto": factored, but literal for a dynamic
            expansion of one token or of one vector a token.

    Returns:
        (B, L, d), zero in padded rows.

    Raises:
        ValueError: groups that are not positive or do not add up to N, shapes that do not fit, a
            mask that is not boolean, an unknown implementation or kind of dropout, dropout outside
            [0, 1], "fused" where there is no kernel for the call.
    """
    groups = coefficients(groups)
    N = len(query_vectors)
    if sum(groups) != N:
        raise ValueError(f"groups {groups} must add up to {N}, the query vectors")
    _check_vectors(query_vectors, bias_vectors, keys)
    _check_alike(keys, {"values_1": values_1, "values_2": values_2, "selectors": selectors})
    _check_mask(mask, keys)
    check_dropout(dropout, dropout_of)
    values_1, values_2, selectors = _promoted(values_1, values_2, selectors)
    form = choose(implementation)
    key_bias = None
    if key_projection is not None:
        if form == "factored" and factored.folds(keys.shape[0], keys.shape[1], N):
            query_vectors, key_bias = factored.fold(query_vectors, *key_projection)
        else:
            keys = F.linear(*_promoted(keys, *key_projection))
    if form == "fused":
        _without_dropout(dropout)
        tensors = query_vectors, bias_vectors, keys, values_1, values_2, selectors
        return kernels.static_expansion(*tensors, groups, mask)
    values = values_1, values_2
    x = Operands(query_vectors, bias_vectors, keys, values, selectors, mask, dropout, dropout_of)
    if form == "factored":
        return factored.static(x, groups, key_bias)
    return literal.static(x, groups)


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
    dropout_of: str = "values",
    implementation: str = "auto",
) -> Tensor:
    """Dynamic Expansion (v1 3, 5-9; v2 1-8).

    If ``causal``, the expanded row (j, n) gathers from tokens i <= j only, and token i reads rows
    with j <= i only, so that no output depends on a later token.

    Args:
        query_vectors: E_Q, (N_E, d).
        bias_vectors: E_B, (N_E, d).
        conditions: C, (B, L, d).
        keys: K, (B, L, d).
        values_1: V_1, (B, L, d).
        values_2: V_2, (B, L, d).
        selectors: S, (B, L, d).
        mask: (B, L) booleans, True for valid tokens; padded rows must hold finite values.
        causal: the auto-regressive form; else the bidirectional one.
        dropout: see ``static_expansion``.
        dropout_of: see ``static_expansion``.
        implementation: see ``static_expansion``.

    Returns:
        (B, L, d), zero in padded rows.

    Raises:
        ValueError: shapes that do not fit, a mask that is not boolean, an unknown implementation
            or kind of dropout, dropout outside [0, 1], "fused" where there is no kernel for the
            call.
    """
    _check_vectors(query_vectors, bias_vectors, keys)
    others = {"conditions": conditions, "values_1": values_1, "values_2": values_2}
    _check_alike(keys, {**others, "selectors": selectors})
    _check_mask(mask, keys)
    check_dropout(dropout, dropout_of)
    values_1, values_2, selectors = _promoted(values_1, values_2, selectors)
    L, N_E = keys.shape[1], len(query_vectors)
    products_literal, products_factored = L * N_E, L + N_E  # dot products of M per token
    form = choose(implementation, products_factored <= products_literal)
    if form == "fused":
        _without_dropout(dropout)
        tokens = conditions, keys, values_1, values_2, selectors
        return kernels.dynamic_expansion(query_vectors, bias_vectors, *tokens, mask, causal=causal)
    values = values_1, values_2
    x = Operands(query_vectors, bias_vectors, keys, values, selectors, mask, dropout, dropout_of)
    run = factored.dynamic if form == "factored" else literal.dynamic
    return run(x, conditions, causal)


def _check_vectors(query_vectors: Tensor, bias_vectors: Tensor, keys: Tensor) -> None:
    if keys.dim() != 3:
        raise ValueError(f"keys has shape {tuple(keys.shape)}, expected (B, L, d)")
    d = keys.shape[-1]
    if query_vectors.dim() != 2 or query_vectors.shape[-1] != d:
        raise ValueError(f"query_vectors has shape {tuple(query_vectors.shape)}, expected (N, {d})")
    _check_alike(query_vectors, {"bias_vectors": bias_vectors})


def _check_alike(first: Tensor, others: Mapping[str, Tensor]) -> None:
    for name, tensor in others.items():
        if tensor.shape != first.shape:
            raise ValueError(
                f"{name} has shape {tuple(tensor.shape)}, expected {tuple(first.shape)}"
            )


def _promoted(*tensors: Tensor) -> list[Tensor]:
    """The tensors in their common promoted dtype."""
    dtype = reduce(torch.promote_types, (tensor.dtype for tensor in tensors))
    return [tensor.to(dtype) for tensor in tensors]


def _check_mask(mask: Tensor | None, keys: Tensor) -> None:
    if mask is not None and (mask.dtype != torch.bool or mask.shape != keys.shape[:2]):
        raise ValueError(
            f"mask is {mask.dtype} of shape {tuple(mask.shape)}, expected booleans of shape "
            f"{tuple(keys.shape[:2])}"
        )


def _without_dropout(dropout: float) -> None:
    if dropout:
        raise ValueError("the fused implementation has no dropout, expected literal or factored")


def choose(implementation: str, factored_pays: bool = True) -> str:
    """``implementation``, with "auto" resolved.

    Raises:
        ValueError: an unknown implementation.
    """
    if one_of(implementation, "implementation", IMPLEMENTATIONS) != "auto":
        return implementation
    return "factored" if factored_pays else "literal"


def check_dropout(dropout: float, dropout_of: str) -> None:
    """Raise ValueError unless dropout is in [0, 1] and ``dropout_of`` is in ``DROPOUTS``."""
    one_of(dropout_of, "dropout_of", DROPOUTS)
    if not 0 <= dropout <= 1:
        raise ValueError(f"dropout is {dropout}, expected in [0, 1]")


def coefficients(groups: Sequence[int]) -> tuple[int, ...]:
    """``groups`` as positive ints, at least one, else ValueError."""
    if isinstance(groups, int | str):
        raise ValueError(f"groups is {groups!r}, expected the coefficients of one or more groups")
    if len(groups) == 0:
        raise ValueError("groups must name at least one expansion coefficient")
    return tuple(positive(size, "an expansion coefficient of groups") for size in groups)
