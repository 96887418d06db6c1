"""The expansion mechanism as layers with their projections."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from torch_impl.common.checks import positive
from torch_impl.common.padding import (
    Lengths,
    check_tokens,
    padding_mask,
    zero_padding,
)
from torch_impl.expansion.functional import (
    check_dropout,
    choose,
    coefficients,
    dynamic_expansion,
    static_expansion,
)


class _ExpansionLayer(nn.Module):
    """The parameters of both forms: N expansion vectors and the projections of tokens."""

    key: nn.Linear
    value_1: nn.Linear
    value_2: nn.Linear
    selector: nn.Linear

    def __init__(
        self,
        d_model: int,
        num_vectors: int,
        projections: Sequence[str],
        dropout: float,
        dropout_of: str,
        implementation: str,
    ) -> None:
        super().__init__()
        self.d_model = positive(d_model, "d_model")
        choose(implementation)
        check_dropout(dropout, dropout_of)
        self.dropout, self.dropout_of, self.implementation = dropout, dropout_of, implementation
        self.query_vectors = nn.Parameter(torch.empty(num_vectors, d_model))
        self.bias_vectors = nn.Parameter(torch.empty(num_vectors, d_model))
        for name in projections:
            self.add_module(name, nn.Linear(d_model, d_model))
        nn.init.xavier_uniform_(self.query_vectors)
        nn.init.xavier_uniform_(self.bias_vectors)

    def _inputs(self, x: Tensor, lengths: Lengths | None) -> tuple[Tensor, Tensor | None]:
        """``x`` with zeros in padding, and its mask."""
        check_tokens(x, self.d_model)
        mask = padding_mask(lengths, x)
        return zero_padding(x, mask), mask

    def extra_repr(self) -> str:
        return f"dropout={self.dropout} of {self.dropout_of}, {self.implementation}"


class StaticExpansion(_ExpansionLayer):
    """Block Static Expansion as a layer with its projections (v2 equations 2-9).

    Args:
        d_model: d.
        groups: the expansion coefficients G; one number is one group.
        dropout: see ``static_expansion``; active in training mode only.
        dropout_of: see ``static_expansion``.
        implementation: see ``static_expansion``; may be set later.

    Raises:
        ValueError: no group, a group or d_model below 1, an unknown implementation or
            kind of dropout.
    """

    def __init__(
        self,
        d_model: int,
        groups: int | Sequence[int],
        *,
        dropout: float = 0.0,
        dropout_of: str = "values",
        implementation: str = "auto",
    ) -> None:
        G = coefficients((groups,) if isinstance(groups, int) else groups)
        projections = "key", "value_1", "value_2", "selector"
        super().__init__(d_model, sum(G), projections, dropout, dropout_of, implementation)
        self.groups = G

    def forward(self, x: Tensor, lengths: Lengths | None = None) -> Tensor:
        """(B, L, d) to (B, L, d), zero in padded rows.

        Raises:
            ValueError: x is not (B, L, d_model), lengths do not fit it, unknown implementation.
        """
        x, mask = self._inputs(x, lengths)
        return static_expansion(
            self.query_vectors,
            self.bias_vectors,
            x,
            self.value_1(x),
            self.value_2(x),
            self.selector(x),
            self.groups,
            mask,
            key_projection=(self.key.weight, self.key.bias),
            dropout=self.dropout if self.training else 0.0,
            dropout_of=self.dropout_of,
            implementation=self.implementation,
        )

    def extra_repr(self) -> str:
        return f"groups={self.groups}, {super().extra_repr()}"


class DynamicExpansion(_ExpansionLayer):
    """Dynamic Expansion as a layer with its projections (v1 equations 3, 5-9; v2 1-8).

    Args:
        d_model: d.
        num_expansions: N_E, the expanded vectors for each token.
        causal: the auto-regressive form; else the bidirectional one.
        dropout: see ``dynamic_expansion``; active in training mode only.
        dropout_of: see ``dynamic_expansion``.
        implementation: see ``dynamic_expansion``; may be set later.

    Raises:
        ValueError: d_model or num_expansions below 1, an unknown implementation or
            kind of dropout.
    """

    condition: nn.Linear

    def __init__(
        self,
        d_model: int,
        num_expansions: int,
        *,
        causal: bool = True,
        dropout: float = 0.0,
        dropout_of: str = "values",
        implementation: str = "auto",
    ) -> None:
        N_E = positive(num_expansions, "num_expansions")
        projections = "condition", "key", "value_1", "value_2", "selector"
        super().__init__(d_model, N_E, projections, dropout, dropout_of, implementation)
        self.num_expansions, self.causal = N_E, causal

    def forward(self, x: Tensor, lengths: Lengths | None = None) -> Tensor:
        """(B, L, d) to (B, L, d), zero in padded rows.

        Raises:
            ValueError: x is not (B, L, d_model), lengths do not fit it, unknown implementation.
        """
        x, mask = self._inputs(x, lengths)
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
            dropout_of=self.dropout_of,
            implementation=self.implementation,
        )

    def extra_repr(self) -> str:
        return f"num_expansions={self.num_expansions}, causal={self.causal}, {super().extra_repr()}"
