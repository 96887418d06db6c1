"""All subjects, and the suites of cases measured together, the most important first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.perf.cases import (
    ceilings,
    decoding,
    expansions,
    models,
    recurrent,
    reward,
    self_critical,
)
from benchmarks.perf.cases import memory as of_memory
from benchmarks.perf.cases.case import (
    COMPILED,
    FULL_PRECISIONS,
    GRAPHED,
    V2,
    Case,
    Sizes,
    Subject,
)
from benchmarks.perf.cases.expansions import ATTENTION
from benchmarks.perf.cases.models import RECIPE
from torch_impl.layers.transformer import Mixer

_MODULES = (
    *(ceilings, expansions, models, recurrent, decoding, reward, self_critical),
    of_memory,
)
SUBJECTS: dict[str, Subject] = {
    subject.name: subject for module in _MODULES for subject in module.SUBJECTS
}
RANDOM_STATIC, RANDOM_DYNAMIC = (
    replace(
        SUBJECTS[f"{kind}-layer forward+backward"],
        name=f"random-{kind}",
        about=f"a {kind} expansion layer of a random shape, both passes",
    )
    for kind in ("static", "dynamic")
)
RANDOM = (RANDOM_STATIC, RANDOM_DYNAMIC)
"""Layers of random shapes: "auto" must find the faster form by its closed form alone."""
SUBJECTS |= {subject.name: subject for subject in RANDOM}
SHAPES, SEED = 20, 0
NARROWEST = 64
"""The least d of a random shape; every d is a multiple of it."""
GPU_PRECISIONS = ("float32", "tf32", "bfloat16")
"""Precisions of the GPU suite; float16 is opt-in: --precision."""
FORMS = ("literal", "factored")
EAGER = (*FORMS, "fused")
ALL_COMPILED = ("literal", *(name + COMPILED for name in EAGER))
LOOPS = ("literal", "custom_backward")
READERS = ("prefix", "incremental")
READERS_ON_GPU = (*READERS, "incremental" + GRAPHED)
READERS_COMPILED = (*READERS, "incremental" + COMPILED)
ENCODERS = (
    ATTENTION,
    *(f"static:{n}" for n in (16, 64)),
    *(f"static:{','.join([str(n)] * 5)}" for n in (128, 256, 512)),
    V2,
)
"""The encoders of v2's ablation, Table I."""
STEPS: dict[str, Any] = {"batch": 64, "tokens": 784, "d_model": 128}
"""The sizes at which ARNet's Table 5 is trained."""
WORDS: dict[str, Any] = {"batch": 48, "tokens": 20, "d_model": 512}
"""The sizes of an LSTM that decodes captions."""
REWARDED: dict[str, Any] = {"dropout": 0.1}
"""The dropout of v2's self-critical training."""
FRAMES: dict[str, Any] = {"batch": 16, "length": 30, "tokens": 21}
"""The sizes of a Middle-Out step: 30 rows of features, halves of 10 words, the middle word."""
DECODERS = (ATTENTION, *(f"dynamic:{n}" for n in (4, 8, 16)))


def case(
    subject: str, implementations: Sequence[str] = (), precision: str = "float32", **sizes: Any
) -> Case:
    """A case by its subject's name; the sizes that are not given are v2's."""
    return Case(SUBJECTS[subject], tuple(implementations), Sizes(**sizes), precision)


def random_shapes(seed: int = SEED) -> list[Case]:
    """`SHAPES` random static layers of 1 to 5 groups, and as many dynamic ones."""
    generator = np.random.default_rng(seed)

    def between(low: int, high: int) -> int:
        """A log-uniform integer: as likely from 2 to 4 as from 100 to 200."""
        return int(np.exp(generator.uniform(np.log(low), np.log(high + 1))))

    cases, implementations = [], (*FORMS, "auto")
    for _ in range(SHAPES):
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
        cases.append(Case(RANDOM_STATIC, implementations, static))
        cases.append(Case(RANDOM_DYNAMIC, implementations, dynamic))
    return cases


def cpu(seed: int = SEED) -> list[Case]:
    """The cases that targets on a CPU need, and random shapes by ``seed``."""
    return [
        case("ceilings", ("device",)),
        case("static-layer forward+backward", FORMS),
        case("dynamic-operator forward", FORMS),
        case("dynamic-operator forward+backward", FORMS),
        case("dynamic-memory", FORMS),
        case("reward", SUBJECTS["reward"].implementations),
        case("xe-step", ("literal", "auto"), batch=16, dropout=RECIPE.dropout),
        case("sc-step", SUBJECTS["sc-step"].implementations, batch=4, **REWARDED),
        case("sc-step", SUBJECTS["sc-step"].implementations, **REWARDED),
        case("beam", READERS, batch=1),
        case("beam", READERS, batch=8),
        case("beam-encoded", (*READERS, *decoding.ROUNDED), batch=1),
        case("beam-encoded", READERS, batch=8),
        case("decoder-weights", SUBJECTS["decoder-weights"].implementations, batch=1),
        case("static-layer forward", FORMS),
        case("dynamic-layer forward", FORMS),
        case("dynamic-layer forward+backward", FORMS),
        case("digits-step", ("literal", "auto"), **STEPS),
        case("zoneout forward+backward", LOOPS, **STEPS),
        case("read-only forward+backward", LOOPS, **WORDS),
        case("attentive forward+backward", LOOPS, length=49, **WORDS),
        case("middle-out-step", LOOPS, **FRAMES),
        case("ceilings", ("device",)),
        *random_shapes(seed),
    ]


def gpu(seed: int = SEED) -> list[Case]:
    """What targets on a GPU need in every precision, then the rest, then compiled forms."""
    large = {"copied": 2**30, "product": 8192}
    needed, rest, compiled = [], [], []
    for precision in FULL_PRECISIONS:
        needed.append(
            case("digits-step", ("literal", "custom_backward", "auto"), precision, **STEPS)
        )
        needed.append(case("zoneout forward+backward", LOOPS, precision, **STEPS))
        rest.append(case("read-only forward+backward", LOOPS, precision, **WORDS))
        rest.append(case("attentive forward+backward", LOOPS, precision, length=49, **WORDS))
        rest.append(case("middle-out-step", LOOPS, precision, **FRAMES))
    for precision in GPU_PRECISIONS:
        needed.append(case("ceilings", ("device",), precision, **large))
        needed.append(case("static-layer forward+backward", EAGER, precision))
        needed.append(case("static-operator forward+backward", EAGER, precision))
        needed.append(case("xe-step", EAGER, precision, dropout=RECIPE.dropout))
        needed.append(case("beam", READERS_ON_GPU, precision))
        for subject in (
            "static-layer forward",
            "dynamic-layer forward",
            "dynamic-layer forward+backward",
            "encoder forward",
            "encoder forward+backward",
            "decoder forward",
            "decoder forward+backward",
        ):
            rest.append(case(subject, EAGER, precision))
            compiled.append(case(subject, ALL_COMPILED, precision))
        rest.append(case("greedy", READERS_ON_GPU, precision))
        for subject in ("static-layer forward+backward", "static-operator forward+backward"):
            compiled.append(case(subject, ALL_COMPILED, precision))
        compiled.append(case("xe-step", ALL_COMPILED, precision, dropout=RECIPE.dropout))
        for subject in ("beam", "greedy"):
            compiled.append(case(subject, READERS_COMPILED, precision))
    reward = case("reward", SUBJECTS["reward"].implementations)
    return [*needed, reward, *rest, *compiled]


def grid(seed: int = SEED) -> list[Case]:
    """Every expansion coefficient of the papers' ablations in encoder and decoder."""
    halves = [case("encoder forward+backward", FORMS), case("decoder forward+backward", FORMS)]
    whole = [case("xe-step", ("literal", "auto"), dropout=RECIPE.dropout), case("beam", READERS)]
    return over([*halves, *whole], ENCODERS, DECODERS)


def memory(seed: int = SEED) -> list[Case]:
    """Growth of memory for every encoder and decoder of the ablations."""
    step = case("step-memory", EAGER, batch=4, dropout=RECIPE.dropout)
    steps = over([step], ENCODERS, [Sizes().decoder])
    vectors = [case("dynamic-memory", EAGER, decoder=mixer) for mixer in DECODERS[1:]]
    return [*vectors, *steps]


SUITES: dict[str, Callable[[int], list[Case]]] = {
    "cpu": cpu,
    "gpu": gpu,
    "grid": grid,
    "memory": memory,
}
"""Suites by name; each takes the seed of its random shapes."""


def over(cases: Iterable[Case], encoders: Sequence[str], decoders: Sequence[str]) -> list[Case]:
    """Each case with every pair of mixers; cases that differ in an unused mixer appear once."""
    paired: dict[str, Case] = {}
    for one in cases:
        for encoder in encoders:
            for decoder in decoders:
                sizes = replace(one.sizes, encoder=encoder, decoder=decoder)
                other = replace(one, sizes=sizes)
                paired.setdefault(f"{other.row} {other.implementations}", _attending(other))
    return list(paired.values())


def _attending(one: Case) -> Case:
    """The case, or that of `ATTENTION` alone if all mixers that it uses are attention."""
    halves = [name for name in ("encoder", "decoder") if name in one.subject.sizes]
    expands = any(not Mixer.parse(getattr(one.sizes, half)).attends for half in halves)
    if expands or "literal" not in one.subject.implementations:
        return one
    # the unused half is attention too
    sizes = replace(one.sizes, encoder=ATTENTION, decoder=ATTENTION)
    return replace(one, implementations=(ATTENTION,), sizes=sizes)
