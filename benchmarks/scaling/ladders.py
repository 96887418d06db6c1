"""What grows: an operator or a search, at sizes that double, and what it then costs in closed form.

Multiply-accumulates of an operator, both passes, for one sample. Literal: every product forth is
two back, so three times v2's equations. Factored: what `closed_forms` has forth; back it is counted
likewise, with what is made again instead of kept; either way by the cheaper association.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from benchmarks.closed_forms import Length, dynamic_literal, static_literal
from benchmarks.scaling import saved
from benchmarks.speed.case import Case, Sizes
from benchmarks.speed.subjects import SUBJECTS
from torch_impl.transformer import Mixer

FORMS = ("literal", "factored")
BOTH_PASSES = 3


def static_macs(sizes: Sizes, implementation: str) -> float:
    """Of a static operator, both passes, the whole batch."""
    L, d, N = sizes.length, sizes.d_model, sum(Mixer.parse(sizes.encoder).coefficients)
    if implementation == "literal":
        return sizes.batch * BOTH_PASSES * static_literal(Length.of([L]), d, N)
    forth = N * L * d + min(2 * N * L * L + 2 * L * L * d + 2 * N * L * d, 4 * N * L * d)
    back = 2 * N * L * d + min(6 * N * L * L + 6 * L * L * d + 5 * N * L * d, 12 * N * L * d)
    return sizes.batch * (forth + back)


def dynamic_macs(sizes: Sizes, implementation: str) -> float:
    """Of a dynamic operator, both passes, the whole batch."""
    L, d, (N,) = sizes.tokens, sizes.d_model, Mixer.parse(sizes.decoder).coefficients
    if implementation == "literal":
        return sizes.batch * BOTH_PASSES * dynamic_literal(Length.of([L]), d, N)
    split = L * L * d + L * N * d
    forth = split + min(2 * L**3 * N + 4 * L * L * d + 2 * L * N * d, 4 * L * L * N * d)
    back = 2 * split + min(6 * L**3 * N + 11 * L * L * d + 5 * L * N * d, 12 * L * L * N * d)
    return sizes.batch * (forth + back)


@dataclass(frozen=True)
class Ladder:
    """One thing at several sizes.

    Args:
        name: as on the command line and in records.
        subject: of `speed.subjects`.
        symbol: what grows, as the papers call it.
        sizes: of it, ascending.
        at: the sizes of a case at each.
        implementations: that are measured.
        macs: multiply-accumulates in closed form; None where only a count knows them.
        saved: bytes kept for the backward pass by implementation, a form of `saved`; empty where
            only a count knows them.
    """

    name: str
    subject: str
    symbol: str
    sizes: tuple[int, ...]
    at: Callable[[int], Sizes]
    implementations: tuple[str, ...] = FORMS
    macs: Callable[[Sizes, str], float] | None = None
    saved: Mapping[str, str] = field(default_factory=dict)

    def case(self, size: int, implementation: str, *, tiny: bool = False) -> Case:
        """What is measured at one size."""
        sizes = self.at(size)
        if tiny:
            sizes = replace(sizes, d_model=8, d_ff=8, heads=2, layers=1, vocabulary=12, d_feature=6)
        return Case(SUBJECTS[self.subject], (implementation,), sizes)


STATIC, DYNAMIC = (f"{kind}-operator forward+backward" for kind in ("static", "dynamic"))
READERS = ("prefix", "incremental")

LADDERS: dict[str, Ladder] = {
    ladder.name: ladder
    for ladder in (
        Ladder(
            "static-length",
            STATIC,
            "L",
            (18, 36, 72, 144, 288),
            lambda n: Sizes(batch=4, length=n),
            macs=static_macs,
            saved=saved.STATIC,
        ),
        Ladder(
            "static-vectors",
            STATIC,
            "sum G",
            (64, 128, 256, 512, 1024),
            lambda n: Sizes(batch=4, encoder=f"static:{n}"),
            macs=static_macs,
            saved=saved.STATIC,
        ),
        Ladder(
            "static-batch",
            STATIC,
            "B",
            (1, 2, 4, 8, 16),
            lambda n: Sizes(batch=n),
            macs=static_macs,
            saved=saved.STATIC,
        ),
        Ladder(
            "dynamic-tokens",
            DYNAMIC,
            "T",
            (5, 10, 20, 40, 80),
            lambda n: Sizes(batch=8, tokens=n),
            macs=dynamic_macs,
            saved=saved.DYNAMIC,
        ),
        Ladder(
            "dynamic-vectors",
            DYNAMIC,
            "N_E",
            (2, 4, 8, 16, 32),
            lambda n: Sizes(batch=8, decoder=f"dynamic:{n}"),
            macs=dynamic_macs,
            saved=saved.DYNAMIC,
        ),
        Ladder(
            "dynamic-batch",
            DYNAMIC,
            "B",
            (3, 6, 12, 24, 48),
            lambda n: Sizes(batch=n),
            macs=dynamic_macs,
            saved=saved.DYNAMIC,
        ),
        Ladder(
            "beam-size",
            "beam-encoded",
            "beam",
            (1, 2, 4, 8),
            lambda n: Sizes(batch=1, beam=n),
            READERS,
        ),
    )
}
"""Each small enough that its largest size takes about a second on one core."""
