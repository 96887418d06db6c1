"""Layers of random shapes: where the quicker form is to be found by closed form alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.perf.cases import expansions
from benchmarks.perf.cases.case import Case, Sizes

IMPLEMENTATIONS = ("literal", "factored", "auto")
SHAPES, SEED = 20, 0
NARROWEST = 64
"""The least d; one of its multiples is chosen."""

_LAYERS = {subject.name: subject for subject in expansions.SUBJECTS}
STATIC, DYNAMIC = (
    replace(
        _LAYERS[f"{kind}-layer forward+backward"],
        name=f"random-{kind}",
        about=f"a {kind} expansion layer of a random shape, both passes",
    )
    for kind in ("static", "dynamic")
)
SUBJECTS = [STATIC, DYNAMIC]


def cases(shapes: int = SHAPES, seed: int = SEED) -> list[Case]:
    """As many static and dynamic layers, of 1 to 5 groups and of N_E from 2 on."""
    generator = np.random.default_rng(seed)

    def between(low: int, high: int) -> int:
        """As likely from 2 to 4 as from 100 to 200."""
        return int(np.exp(generator.uniform(np.log(low), np.log(high + 1))))

    found = []
    for _ in range(shapes):
        batch, d = between(1, 48), NARROWEST * between(1, 12)
        groups = [between(4, 512) for _ in range(generator.integers(1, 6))]
        static = Sizes(
            batch=batch,
            length=between(2, 200),
            d_model=d,
            encoder=f"static:{','.join(map(str, groups))}",
        )
        dynamic = Sizes(
            batch=batch, tokens=between(2, 40), d_model=d, decoder=f"dynamic:{between(2, 32)}"
        )
        found.append(Case(STATIC, IMPLEMENTATIONS, static))
        found.append(Case(DYNAMIC, IMPLEMENTATIONS, dynamic))
    return found
