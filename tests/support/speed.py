"""What tests of timings share: tiny cases, the command, and records that were not measured."""

from __future__ import annotations

from functools import wraps

import pytest
import torch

from benchmarks import records
from benchmarks.cli.main import main
from benchmarks.kinds import Timing
from benchmarks.perf import case_records
from benchmarks.perf.cases import suites
from benchmarks.perf.cases.case import Case, Sizes
from benchmarks.perf.cases.suites import SUBJECTS
from benchmarks.perf.kernels import Kernel
from benchmarks.perf.scaling import growth
from tests.support import records as kinds

CPU = torch.device("cpu")
QUICK = ["--tiny", "--seconds", "0.001"]
GPU = records.Device(kind="cuda", name="a GPU of theirs", cores=16, threads=1)
STATIC = suites.case("static-layer forward+backward", ())


def forbidden(function):
    """In place of ``function``, which must not be called; code that names it stays the same."""
    return wraps(function)(lambda *_, **__: pytest.fail("measured again"))


@pytest.fixture
def counted_elsewhere(monkeypatch):
    """Nothing is dispatched on fake tensors, nor collected between cases, which takes the longest:
    tests of subjects and of kernels hold what that gives."""
    monkeypatch.setattr(case_records, "_moved", lambda *_: {"moved bytes": 8.0})
    monkeypatch.setattr(growth, "dispatched", lambda *_, **__: [Kernel("mm", 1.0, 1.0)])
    monkeypatch.setattr(case_records.gc, "collect", lambda: 0)


def tiny(subject: str, **sizes) -> Case:
    return Case(SUBJECTS[subject], SUBJECTS[subject].implementations, Sizes(**sizes).tiny())


def timed(tmp_path, *words: str, code: int = 0):
    """The records that a command wrote."""
    path = tmp_path / "r.jsonl"
    assert main(["time", *QUICK, "--out", str(path), *words]) == code
    return records.read(path)


def record(case: Case, implementation: str, values: dict, **details):
    details = {"baseline": "literal", "verdict": "not settled", **details}
    of = {"case": case.recorded(), "implementation": implementation}
    where = {"paper": "all", "table": case_records.TABLE, "key": "k", "status": records.MEASURED}
    row = f"{case.row}: {implementation}"
    kind = kinds.filled(Timing, row=case.row, **of, **details)
    return records.make(kind, **where, row=row, values=values, device=kinds.CPU)
