"""The benchmarks that revisions are compared by: the project's operators at sizes of milliseconds.

They are subjects of `benchmarks.perf.cases` at smaller sizes. A subject's module is imported only
for its own benchmarks, so that one which a revision lacks disables no other benchmark.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from benchmarks.errors import InputError
from benchmarks.perf.cases.case import Case, Sizes, Subject, eager


@dataclass(frozen=True)
class Benchmark:
    """A subject at fixed sizes."""

    name: str  # as on the command line and in records
    module: str  # of `benchmarks.perf.cases`, with the subject
    subject: str  # its name
    implementation: str  # timed by default
    # operators of `captionbench verify` that must pass before it is timed
    operators: tuple[str, ...]
    # that differ from the defaults of `Sizes`
    sizes: Mapping[str, int | float] = field(default_factory=dict)

    def find(self) -> Subject:
        """The subject, with the ``torch_impl`` that this process has imported."""
        module = importlib.import_module(f"benchmarks.perf.cases.{self.module}")
        return next(subject for subject in module.SUBJECTS if subject.name == self.subject)

    def case(self, implementation: str) -> Case:
        sizes = Sizes(**self.sizes)  # type: ignore[arg-type]
        return Case(self.find(), (implementation,), sizes)


SMALL = {"d_model": 128, "d_ff": 512, "layers": 1, "vocabulary": 1000, "length": 49}
"""Sizes at which a training step or a caption takes about 25 ms."""

BENCHMARKS = {
    one.name: one
    for one in (
        Benchmark(
            "static-operator",
            "expansions",
            "static-operator forward+backward",
            "auto",
            ("static_expansion",),
            {"batch": 1, "length": 49},
        ),
        Benchmark(
            "static-layer",
            "expansions",
            "static-layer forward",
            "auto",
            ("static_expansion",),
            {"batch": 1, "length": 49},
        ),
        Benchmark(
            "dynamic-operator",
            "expansions",
            "dynamic-operator forward+backward",
            "auto",
            ("dynamic_expansion",),
            {"batch": 4},
        ),
        Benchmark(
            "training-step",
            "models",
            "xe-step",
            "auto",
            ("captioner", "cross_entropy"),
            {**SMALL, "batch": 2, "dropout": 0.1},
        ),
        Benchmark(
            "beam-search",
            "decoding",
            "beam",
            "incremental",
            ("captioner", "beam_search"),
            {**SMALL, "batch": 1},
        ),
        Benchmark("reward", "reward", "reward", "tensors", ("cider_d",), {"candidates": 48}),
    )
}


def chosen(names: Iterable[str], implementation: str | None) -> list[tuple[Benchmark, str]]:
    """The named benchmarks, each with the implementation to time.

    Raises:
        InputError: none has that implementation.
    """
    benchmarks = [BENCHMARKS[name] for name in names]
    if implementation is None:
        return [(one, one.implementation) for one in benchmarks]
    having = [
        (one, implementation) for one in benchmarks if implementation in one.find().implementations
    ]
    if not having:
        known = {name for one in benchmarks for name in one.find().implementations}
        raise InputError(
            f"--implementation {implementation}: none of these benchmarks has it, expected one of "
            f"{', '.join(sorted(name for name in known if eager(name) == name))}"
        )
    return having
