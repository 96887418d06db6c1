"""The reward of self-critical training: CIDEr-D of sampled captions."""

from __future__ import annotations

import numpy as np
import torch
from pycocoevalcap.cider.cider import Cider

from benchmarks.perf.cases.case import Case, Subject, Work
from torch_impl.cider import CiderD, padded

IMPLEMENTATIONS = ("pycocoevalcap", "tensors")
WORDS, SHORTEST, LONGEST = 1000, 8, 14

Captions = list[list[int]]


def _captions(case: Case) -> tuple[Captions, list[Captions]]:
    """Candidates and references; a candidate is a reference with about 1/3 of its words changed.

    Words follow Zipf's law: the r-th most common has a frequency of 1 / r.
    """
    generator = np.random.default_rng(0)
    frequencies = 1 / np.arange(1, WORDS + 1)
    frequencies /= frequencies.sum()

    def words(count: int) -> list[int]:
        return generator.choice(WORDS, size=count, p=frequencies).tolist()

    references, candidates = [], []
    for _ in range(case.sizes.candidates):
        lengths = generator.integers(SHORTEST, LONGEST + 1, size=case.sizes.references)
        references.append([words(length) for length in lengths])
        first = references[-1][0]
        changed = generator.random(len(first)) < 1 / 3
        others = words(len(first))
        candidates.append([b if c else a for a, b, c in zip(first, others, changed, strict=True)])
    return candidates, references


def _reward(case: Case, implementation: str, device: torch.device) -> Work:
    candidates, references = _captions(case)
    if implementation == "pycocoevalcap":
        # strings, as it expects; each call recomputes the document frequencies
        texts = {i: [" ".join(map(str, caption))] for i, caption in enumerate(candidates)}
        true = {i: [" ".join(map(str, c)) for c in group] for i, group in enumerate(references)}
        return Work(lambda: Cider().compute_score(true, texts)[1])
    if implementation != "tensors":
        raise ValueError(f"expected one of {', '.join(IMPLEMENTATIONS)}")
    # lists, as decoding returns them; training packs the references once
    reward = CiderD(references).to(device)
    images = torch.arange(len(candidates), device=device)
    return Work(lambda: reward(padded(candidates).to(device), images).cpu(), [*reward.buffers()])


SUBJECTS = [
    Subject(
        "reward",
        "CIDEr-D of candidates, each against references of its own",
        ("candidates", "references"),
        IMPLEMENTATIONS,
        make=_reward,
        precisions=("float32",),
    )
]
