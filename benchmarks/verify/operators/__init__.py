"""The operators that a candidate can claim to be, by family.

To add one, write in the module of its family (or a new one, listed below):

1. ``case``: a function of a ``Draw`` that returns the arguments. Every size and choice has a name;
   sizes have a small range, and large values that are no multiples of kernel tiles:

       def _layer_norms(draw: Draw) -> Case:
           d, L = draw.size("d", 6, large=(40, 130, 512)), draw.size("L", 6, large=(17, 200))
           return draw.inputs(L, d), draw.norm("", d)

   Choices that depend on another size are taken modulo it: any combination must be a valid case.
2. an ``Operator``: its arguments, the oracle's function of the same arguments, everything that an
   implementer must know (``about``, ``conventions``; ``--list`` prints them), the arguments ``by``
   which it is differentiated, ``sequences`` if it takes padded batches, and the papers' equations.

Everything else follows: small and large cases, memory layouts, state, dtypes, gradients, padded
batches. Properties of this operator only are functions in ``properties``, listed in
``extra_properties``; pins with their own name are in ``special``. This project's implementation is
a function in ``benchmarks.verify.project``.
"""

from __future__ import annotations

from difflib import get_close_matches

from benchmarks.errors import InputError
from benchmarks.verify.operators import (
    arnet,
    attention,
    decoding,
    expansion,
    metrics,
    middle_out,
    objectives,
    optimisation,
    recurrent,
    transformer,
)
from benchmarks.verify.operators.operator import Operator, Property

__all__ = ["OPERATORS", "Operator", "Property", "get_operator"]

FAMILIES = (
    expansion,
    attention,
    transformer,
    recurrent,
    arnet,
    middle_out,
    objectives,
    optimisation,
    decoding,
    metrics,
)

OPERATORS: dict[str, Operator] = {
    operator.name: operator for family in FAMILIES for operator in family.OPERATORS
}
"""The operators by name."""


def get_operator(name: str | None, option: str = "operator") -> Operator:
    """The operator of a name, given by the user in ``option``.

    Raises:
        InputError: there is none.
    """
    if name in OPERATORS:
        return OPERATORS[name]
    close = get_close_matches(name or "", OPERATORS)
    said = "is missing" if name is None else f"{name!r} is unknown"
    meant = f", did you mean {' or '.join(close)}?" if close else ""
    raise InputError(f"{option} {said}: expected a name of captionbench verify --list{meant}")
