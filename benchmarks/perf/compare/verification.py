"""Verify a revision against the oracle before it is timed.

Both revisions are verified against the running checkout's oracle, since a revision's own could be
wrong in the same way as its implementation. Changing the oracle can make older revisions fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import torch

from benchmarks.perf.cases.case import eager
from benchmarks.perf.compare.benchmarks import Benchmark
from benchmarks.verify import project
from benchmarks.verify.conformance import FAILED, conformance_test
from benchmarks.verify.detection import resolve
from benchmarks.verify.operators import OPERATORS
from benchmarks.verify.project import ProjectImplementation, implementations


def failures(benchmark: Benchmark, implementation: str, device: str, examples: int) -> list[str]:
    """The properties that a benchmark fails, a line each; empty if all hold.

    "auto" stands for all implementations that it may choose from.
    """
    name = eager(implementation)
    lines = [line for op in benchmark.operators for line in _failures(op, name, device, examples)]
    if benchmark.module == "decoding" and not lines:
        lines += _reads_otherwise(benchmark, name, device)
    return lines


@cache
def _failures(operator: str, implementation: str, device: str, examples: int) -> tuple[str, ...]:
    tested, lines = OPERATORS[operator], []
    for each in _implementations(operator, implementation, device):
        with resolve(each.function, tested, each.framework, device, name=each.name) as candidate:
            for verdict in conformance_test(tested, candidate, examples=examples, is_project=True):
                if verdict.status == FAILED:
                    said = f"{operator} ({each.implementation}): {verdict.name}"
                    lines.append(f"{said}: {verdict.message}".splitlines()[0])
    return tuple(lines)


def _implementations(
    operator: str, implementation: str, device: str
) -> Iterator[ProjectImplementation]:
    if operator == "cider_d":
        yield ProjectImplementation(operator, "torch", partial(_rewards, device=device), "numpy")
        return
    if operator in project.EXPANSIONS:
        chosen = project.of_form(operator, implementation)
        yield from [chosen, chosen.with_small_tiles()] if implementation == "factored" else [chosen]
        if implementation != "auto":
            return
    yield from (each for each in implementations(device) if each.operator == operator)


def _rewards(candidates: list[list[str]], references: Any, *, device: str) -> Any:
    """CIDEr-D on tensors of captions of words, each word mapped to a number."""
    from torch_impl.cider import CiderD, padded

    words = {w for group in [candidates, *references] for caption in group for w in caption}
    ids = {word: i for i, word in enumerate(sorted(words))}

    def numbers(captions: list[list[str]]) -> list[list[int]]:
        return [[ids[word] for word in caption] for caption in captions]

    reward = CiderD([numbers(group) for group in references]).to(device)
    images = torch.arange(len(candidates), device=device)
    return reward(padded(numbers(candidates)).to(device), images).cpu().numpy()


def _reads_otherwise(benchmark: Benchmark, implementation: str, device: str) -> list[str]:
    """A failure if decoding with a KV cache gives other captions than whole prefixes."""
    case = benchmark.case(implementation)
    tiny = replace(case, sizes=case.sizes.tiny())
    tokens = []
    for name in (implementation, "prefix"):
        captions = tiny.work(name, torch.device(device)).call()
        best = [beam[0] if isinstance(beam, list) else beam for beam in captions]
        tokens.append(np.array([caption.tokens for caption in best]))
    if np.array_equal(tokens[0], tokens[1]):
        return []
    return [f"{benchmark.name} ({implementation}): other captions than by whole prefixes"]
