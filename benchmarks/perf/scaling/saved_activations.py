"""Saved activations of an operator in bytes, in closed form; tests compare them with counts.

In float32, without dropout and padding. B, L, T, d and N_E are the papers' symbols, sumG is the sum
of G. A form is a sum of monomials: a number, then symbols with their powers.

Static, literal: of each stream P, R_fw, R_bw and their sums, and the expanded vectors; then the
gate, its complement and the values they weigh. Dynamic, literal: also E_Q, the masked tensors, and
the masks at a byte each. Factored: M and its sums, the queries over sqrt(d), and two causal masks
as numbers, which are not copied for each vector of a single token.

An LSTM with as many inputs as units, both forms: of each step the gates, c, tanh(c) and h, and the
initial zeros; a loop saves neither h nor c of the last step. With zoneout also the masks and, in a
loop, their complements, and h and c before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from benchmarks.perf.cases.case import Sizes
from torch_impl.layers.transformer import Mixer

STATIC = {
    "literal": "24 B L sumG + 8 B sumG + 8 B L |G| + 8 B sumG d + 16 B L d",
    "factored": "4 B L sumG + 8 B sumG + 8 B L |G| + 4 sumG d",
}
DYNAMIC = {
    "literal": "40 B T^2 N_E + 12 B T N_E d + 8 B T N_E + 16 B T d + 8 B T + 4 T^2 N_E",
    "factored": "4 B T^2 N_E + 8 B T N_E + 8 B T + 8 T^2 N_E + 4 N_E d",
}

LSTM = {"literal": "28 B T d - 4 B d", "custom_backward": "28 B T d + 4 B d"}
ZONEOUT = {"literal": "44 B T d - 4 B d", "custom_backward": "36 B T d + 4 B d"}


def symbols(sizes: Sizes) -> dict[str, int]:
    """The values of the forms' symbols at the sizes of a case."""
    groups = Mixer.parse(sizes.encoder).coefficients
    return {
        "B": sizes.batch,
        "L": sizes.length,
        "T": sizes.tokens,
        "d": sizes.d_model,
        "sumG": sum(groups),
        "|G|": len(groups),
        "N_E": sum(Mixer.parse(sizes.decoder).coefficients),
    }


def value(form: str, numbers: Mapping[str, int]) -> int:
    """The value of a form, given those of its symbols."""

    def monomial(term: str) -> int:
        factor, *powers = term.split()
        pairs = (power.partition("^") for power in powers)
        return int(factor) * math.prod(numbers[name] ** int(n or 1) for name, _, n in pairs)

    return sum(map(monomial, form.replace(" - ", " + -").split(" + ")))
