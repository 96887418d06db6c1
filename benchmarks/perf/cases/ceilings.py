"""The ceilings of a device, measured: copies, matrix products, launches."""

from __future__ import annotations

import torch

from benchmarks.perf.cases.case import HALVES, Case, Subject
from benchmarks.perf.timing import Budget, measure

BUDGET = Budget(seconds=2.0, least=5, most=30)
COPY, PRODUCT = "copied bytes a second", "product FLOPs a second"
OPERATIONS = "operations a second"
SUMS = 100
"""Additions of one number that are timed together, without synchronising in between."""


def _ceilings(case: Case, implementation: str, device: torch.device) -> dict[str, float]:
    """Bytes/s of a copy, read and written; FLOP/s of a square product; tiny operations per second.

    The last is what launches cost.
    """
    dtype = HALVES.get(case.precision, torch.float32)
    source = torch.randn(case.sizes.copied // 4, device=device)
    target = torch.empty_like(source)
    n = case.sizes.product
    # random numbers: products of zeros draw less power and run at a higher clock
    a, b = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    copied = measure({"copy": lambda: target.copy_(source)}, device, BUDGET).seconds("copy")
    product = measure({"product": lambda: torch.mm(a, b, out=out)}, device, BUDGET)
    one = torch.zeros(1, device=device)

    def sums() -> None:
        for _ in range(SUMS):
            one + one

    launched = measure({"sums": sums}, device, BUDGET).seconds("sums")
    return {
        COPY: 2 * source.nbytes / copied.value,
        PRODUCT: 2 * n**3 / product.seconds("product").value,
        OPERATIONS: SUMS / launched.value,
    }


SUBJECTS = [
    Subject(
        "ceilings",
        "a copy within the device, a large product of matrices, operations of one number",
        ("copied", "product"),
        ("device",),
        count=_ceilings,
    )
]
