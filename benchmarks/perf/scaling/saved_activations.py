"""Saved activations, in bytes, of an operator, in closed form: tests hold it to what is counted.

In float32, without dropout and padding. B, L, T, d and N_E are the papers', sumG is the sum of G. A
form is a sum of monomials, written as it is computed: a number, then symbols with their powers.

Literal, static: of each stream P, R_fw, R_bw and their sums, and the expanded vectors; then the
gate, its complement and what they weigh. Dynamic: E_Q and what is masked, too, and the masks, a
byte each. Factored: M and its sums, the queries over sqrt(d), and two causal masks as numbers,
which of a single token are not copied for each vector.

An LSTM of as many inputs as units, literal and as a scan: of each step the gates, c, tanh(c) and h;
a loop saves neither h nor c of the last step, and both have the zeros that they begin with. With
zoneout the masks too, and what a loop blends: the complements of the masks, and h and c before.
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

LSTM = {"literal": "28 B T d - 4 B d", "scan": "28 B T d + 4 B d"}
ZONEOUT = {"literal": "44 B T d - 4 B d", "scan": "36 B T d + 4 B d"}


def symbols(sizes: Sizes) -> dict[str, int]:
    """What the forms' symbols are at the sizes of a case."""
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
    """The form with numbers for its symbols."""

    def monomial(term: str) -> int:
        factor, *powers = term.split()
        pairs = (power.partition("^") for power in powers)
        return int(factor) * math.prod(numbers[name] ** int(n or 1) for name, _, n in pairs)

    return sum(map(monomial, form.replace(" - ", " + -").split(" + ")))
