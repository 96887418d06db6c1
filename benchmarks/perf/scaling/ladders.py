"""Ladders: an operator, an LSTM or a search at sizes that double, and its cost in closed form.

Multiply-accumulates (MACs) of an operator, both passes. Literal: the backward pass has two products
for each of the forward pass, so three times v2's equations. Factored: the forward pass of
`closed_forms`; the backward pass likewise, recomputed operands included; both by the cheaper
association.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from benchmarks.perf.cases.case import Case, Sizes
from benchmarks.perf.cases.suites import SUBJECTS
from benchmarks.perf.flops.closed_forms import Length, dynamic_literal, static_literal
from benchmarks.perf.scaling import saved_activations
from torch_impl.layers.transformer import Mixer

FORMS = ("literal", "factored")
BOTH_PASSES = 3


def static_macs(sizes: Sizes, implementation: str) -> float:
    """MACs of a static operator, both passes, whole batch."""
    L, d, N = sizes.length, sizes.d_model, sum(Mixer.parse(sizes.encoder).coefficients)
    if implementation == "literal":
        return sizes.batch * BOTH_PASSES * static_literal(Length.of([L]), d, N)
    forward = N * L * d + min(2 * N * L * L + 2 * L * L * d + 2 * N * L * d, 4 * N * L * d)
    backward = 2 * N * L * d + min(6 * N * L * L + 6 * L * L * d + 5 * N * L * d, 12 * N * L * d)
    return sizes.batch * (forward + backward)


def dynamic_macs(sizes: Sizes, implementation: str) -> float:
    """MACs of a dynamic operator, both passes, whole batch."""
    L, d, (N,) = sizes.tokens, sizes.d_model, Mixer.parse(sizes.decoder).coefficients
    if implementation == "literal":
        return sizes.batch * BOTH_PASSES * dynamic_literal(Length.of([L]), d, N)
    split = L * L * d + L * N * d
    forward = split + min(2 * L**3 * N + 4 * L * L * d + 2 * L * N * d, 4 * L * L * N * d)
    backward = 2 * split + min(6 * L**3 * N + 11 * L * L * d + 5 * L * N * d, 12 * L * L * N * d)
    return sizes.batch * (forward + backward)


def lstm_macs(sizes: Sizes, implementation: str) -> float:
    """MACs of an LSTM with as many inputs as units, both passes, whole batch.

    In a loop under autograd the initial zeros get no gradient; in the custom backward they do.
    """
    B, T, d = sizes.batch, sizes.tokens, sizes.d_model
    macs = BOTH_PASSES * B * T * 4 * d * (d + d)
    return macs - 4 * B * d * d if implementation == "literal" else macs


@dataclass(frozen=True)
class Ladder:
    """One subject at several sizes."""

    name: str  # as on the command line and in records
    subject: str  # of `suites.SUBJECTS`
    symbol: str  # the papers' symbol of what grows
    sizes: tuple[int, ...]  # its values, ascending
    at: Callable[[int], Sizes]  # value -> sizes of a case
    implementations: tuple[str, ...] = FORMS  # to measure
    # MACs in closed form; None if only counted
    macs: Callable[[Sizes, str], float] | None = None
    # by implementation, a form of `saved_activations`; empty if only counted
    saved: Mapping[str, str] = field(default_factory=dict)

    def case(self, size: int, implementation: str, *, tiny: bool = False) -> Case:
        """The case at one size."""
        sizes = self.at(size)
        if tiny:
            sizes = replace(sizes, d_model=8, d_ff=8, heads=2, layers=1, vocabulary=12, d_feature=6)
        return Case(SUBJECTS[self.subject], (implementation,), sizes)


STATIC, DYNAMIC, LSTM, ZONEOUT = (
    f"{what} forward+backward"
    for what in ("static-operator", "dynamic-operator", "lstm", "zoneout")
)
READERS = ("prefix", "incremental")
ALONG = ("literal", "custom_backward")

_static = partial(Ladder, subject=STATIC, macs=static_macs, saved=saved_activations.STATIC)
_dynamic = partial(Ladder, subject=DYNAMIC, macs=dynamic_macs, saved=saved_activations.DYNAMIC)
_steps = partial(
    Ladder,
    symbol="T",
    sizes=(256, 512, 1024, 2048, 4096),
    at=lambda n: Sizes(batch=4, tokens=n, d_model=64),
    macs=lstm_macs,
)

LADDERS: dict[str, Ladder] = {
    ladder.name: ladder
    for ladder in (
        _static(
            "static-length",
            symbol="L",
            sizes=(18, 36, 72, 144, 288),
            at=lambda n: Sizes(batch=4, length=n),
        ),
        _static(
            "static-vectors",
            symbol="sum G",
            sizes=(64, 128, 256, 512, 1024),
            at=lambda n: Sizes(batch=4, encoder=f"static:{n}"),
        ),
        _static("static-batch", symbol="B", sizes=(1, 2, 4, 8, 16), at=lambda n: Sizes(batch=n)),
        _dynamic(
            "dynamic-tokens",
            symbol="T",
            sizes=(5, 10, 20, 40, 80),
            at=lambda n: Sizes(batch=8, tokens=n),
        ),
        _dynamic(
            "dynamic-vectors",
            symbol="N_E",
            sizes=(2, 4, 8, 16, 32),
            at=lambda n: Sizes(batch=8, decoder=f"dynamic:{n}"),
        ),
        _dynamic(
            "dynamic-batch", symbol="B", sizes=(3, 6, 12, 24, 48), at=lambda n: Sizes(batch=n)
        ),
        _steps(
            "lstm-steps",
            subject=LSTM,
            implementations=(*ALONG, "library"),
            saved=saved_activations.LSTM,
        ),
        _steps(
            "zoneout-steps", subject=ZONEOUT, implementations=ALONG, saved=saved_activations.ZONEOUT
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
"""The largest size of each takes about a second on one core."""
