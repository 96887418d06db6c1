"""What tests of timings share: tiny cases, the command, and records that were not measured."""

from __future__ import annotations

from functools import wraps

import pytest
import torch

from benchmarks import records
from benchmarks.cli.main import main
from benchmarks.perf import case_records
from benchmarks.perf.cases import suites
from benchmarks.perf.cases.case import Case, Sizes
from benchmarks.perf.cases.subjects import SUBJECTS

CPU = torch.device("cpu")
QUICK = ["--tiny", "--seconds", "0.001"]
GPU = {"kind": "cuda", "name": "a GPU of theirs", "cores": 16, "threads": 1}
STATIC = suites.case("static-layer forward+backward", ())


def forbidden(function):
    """In place of ``function``, which must not be called; code that names it stays the same."""
    return wraps(function)(lambda *_, **__: pytest.fail("measured again"))


def tiny(subject: str, **sizes) -> Case:
    return Case(SUBJECTS[subject], SUBJECTS[subject].implementations, Sizes(**sizes).tiny())


def timed(tmp_path, *words: str, code: int = 0):
    """The records that a command wrote."""
    path = tmp_path / "r.jsonl"
    assert main(["time", *QUICK, "--out", str(path), *words]) == code
    return records.read(path)


def record(case: Case, implementation: str, values: dict, **details):
    device = {"kind": "cpu", "name": "a machine", "cores": 2, "threads": 1}
    return records.make(
        "timing",
        paper="all",
        table=case_records.TABLE,
        row=f"{case.row}: {implementation}",
        values=values,
        status="embedded",
        key="k",
        device=device,
        details={
            "case": case.to_dict(),
            "row": case.row,
            "implementation": implementation,
            "baseline": "literal",
            "verdict": "not settled",
            **details,
        },
    )
