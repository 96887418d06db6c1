"""``captionbench counts``: resource counts compared with a committed baseline.

FLOPs and saved activations are equal on every machine, so a difference is a difference in the code.
The number of operators and the peak can change with PyTorch too: they are shown, not compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import torch

from benchmarks.perf import resources
from benchmarks.perf.cases import suites
from benchmarks.perf.cases.case import Case, settings

COMPARED = ("flops", "saved bytes")
BASELINE = Path(__file__).with_name("counts.json")
Counts = dict[str, dict[str, int]]

_small = partial(
    suites.case,
    batch=2,
    length=16,
    tokens=8,
    d_model=32,
    d_ff=64,
    heads=4,
    layers=2,
    vocabulary=50,
    d_feature=24,
    beam=3,
    encoder="static:8,16,24",
    decoder="dynamic:4",
)
FORMS, READERS = suites.FORMS, suites.READERS
CASES = [
    _small("static-operator forward+backward", FORMS),
    _small("static-layer forward", FORMS),
    _small("static-layer forward+backward", FORMS),
    _small("dynamic-operator forward+backward", FORMS),
    _small("dynamic-layer forward", FORMS),
    _small("dynamic-layer forward+backward", FORMS),
    _small("encoder forward+backward", FORMS),
    _small("decoder forward+backward", FORMS),
    _small("xe-step", ("literal", "auto"), dropout=0.3),
    _small("middle-out-step", suites.LOOPS, tokens=9),
    _small("greedy", READERS),
    _small("beam", READERS),
]
"""Small, since counts are exact at every size."""


def count(case: Case, implementation: str) -> dict[str, int]:
    """Resource counts of one call on a CPU with one thread."""
    device = torch.device("cpu")
    with settings(case.precision, 1):
        return resources.count(case.work(implementation, device), device)


def counted() -> Counts:
    """The counts of every case and implementation, by row."""
    return {
        f"{case.row}: {name}": count(case, name) for case in CASES for name in case.implementations
    }


def compared(rows: Counts) -> Counts:
    """The counts that are compared."""
    return {
        row: {name: counts[name] for name in COMPARED if name in counts}
        for row, counts in rows.items()
    }


def differences(rows: Counts, baseline: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Differences of the compared counts from the baseline, a line each."""
    lines = [f"{row}: no longer counted" for row in baseline if row not in rows]
    for row, counts in compared(rows).items():
        for name, now in counts.items():
            before = baseline.get(row, {}).get(name)
            if before is None:
                lines.append(f"{row}: {name} {now}, not in the baseline")
            elif before != now:
                lines.append(
                    f"{row}: {name} {'rose' if now > before else 'fell'}: {before} to {now}"
                )
    return lines
