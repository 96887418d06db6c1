"""The operators that a candidate can claim to be, by family.

To add one, write in the module of its family (or a new one, listed below):

1. ``case``: a function of a ``Draw`` that gives the arguments. Every size and choice has a name;
   sizes have a small range, and large values that straddle tiles:

       def _layer_norms(draw: Draw) -> Case:
           d, L = draw.size("d", 6, large=(40, 130, 512)), draw.size("L", 6, large=(17, 200))
           return draw.inputs(L, d), draw.norm("", d)

   What depends on another size is taken modulo it: any choice must give a case with any other.
2. an ``Operator``: its arguments, the oracle's function of the same arguments, what a candidate has
   to know (``about``, ``conventions``: all of it, ``--list`` prints it), the arguments ``by`` which
   it is differentiated, ``sequences`` where it takes padded batches, and the papers' equations.

Everything else follows: small and large cases, memory layouts, state, dtypes, gradients, padded
batches. What is true of this operator alone is a function in ``properties`` and goes to
``extra_properties``; pins that deserve a name of their own go to ``special``. This project's
implementation of it is a function in ``benchmarks.verify.project``.
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

__all__ = ["OPERATORS", "Operator", "Property", "named"]

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
"""By name."""


def named(name: str | None, option: str = "operator") -> Operator:
    """The operator of that name, by which ``option`` asks for it.

    Raises:
        InputError: there is none.
    """
    if name in OPERATORS:
        return OPERATORS[name]
    close = get_close_matches(name or "", OPERATORS)
    said = "is missing" if name is None else f"{name!r} is unknown"
    meant = f", did you mean {' or '.join(close)}" if close else ""
    raise InputError(f"{option} {said}: expected a name of captionbench verify --list{meant}")
