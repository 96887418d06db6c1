"""Time a case, count its operations and memory, and make its records."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import groupby
from typing import Any, TypeVar

import torch
from msgspec import structs

from benchmarks import records
from benchmarks.errors import InputError
from benchmarks.kinds import Counted, Timing, Verification, Verified
from benchmarks.perf import resources
from benchmarks.perf import threads as cpu_threads
from benchmarks.perf.cases.case import COMPILED, UNAVAILABLE, Case, Work, eager, settings
from benchmarks.perf.kernels import dispatched
from benchmarks.perf.timing import Budget, Measurement, measure
from benchmarks.records import Device, Record
from benchmarks.verify import table

TABLE = "speed"
WARM = "cache warm"
"""Suffix of a row that was timed on CUDA without emptying the cache before each call."""
T = TypeVar("T")
Values = dict[str, float]


def describe(device: torch.device, threads: int, *, pinned: bool = False) -> Device:
    """The device as a record has it; ``pinned`` adds the CPU cores that threads are pinned to."""
    if device.type != "cuda":
        cores = cpu_threads.cores(threads) if pinned else []
        return structs.replace(records.environment().device, threads=threads, pinned=cores)
    properties = torch.cuda.get_device_properties(device)
    return Device(
        kind="cuda",
        name=properties.name,
        cores=os.cpu_count(),
        threads=threads,
        memory=properties.total_memory,
        multiprocessors=properties.multi_processor_count,
        capability=f"{properties.major}.{properties.minor}",
        cuda=torch.version.cuda,
        driver=_driver(),
    )


def _driver() -> str | None:
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.split("\n")[0].strip() or None


def key(case: Case, budget: Budget, described: Device, flush: bool = True) -> str:
    """Key of a case's records: a case is not measured again if a record has it."""
    return records.key_of(
        [time_case, *case.subject.code], case.recorded(), budget, described, flush
    )


def time_case(
    case: Case,
    device: torch.device,
    threads: int,
    budget: Budget,
    *,
    strict: bool,
    flush: bool = True,
) -> list[Record]:
    """Measure each available implementation of a case, one record each.

    Args:
        case: what to measure.
        device: where to compute.
        threads: CPU threads; on a CPU they are pinned to as many cores.
        budget: of the rounds.
        strict: raise if an implementation is unavailable; otherwise it is left out, like one whose
            first call fails, and the records say why.
        flush: empty a CUDA device's cache before each call; without, the row ends with `WARM`.

    Raises:
        InputError: the baseline is unavailable (with ``strict``, any implementation), or the clock
            jumps.
    """
    began = time.perf_counter()
    if "torch._dynamo" in sys.modules:  # its import takes seconds
        torch.compiler.reset()  # graphs of other cases only count towards a limit
    described = describe(device, threads, pinned=True)
    with settings(case.precision, threads), cpu_threads.pinned(described.pinned):
        if case.subject.count:
            values, unavailable = _available(case, case.subject.count, device)
            details: dict[str, dict[str, Any]] = {name: {} for name in values}
        else:
            values, details, unavailable = _timed(case, device, budget, flush)
    gc.collect()  # model and optimiser refer to each other and hold device memory
    if unavailable and (strict or case.implementations[0] in unavailable):
        name, why = next(iter(unavailable.items()))
        raise InputError(f"{case.row}: implementation {name} is unavailable ({why})")
    row = case.row if flush or case.subject.count else f"{case.row}, {WARM}"
    kind = Counted if case.subject.count else Timing
    return [
        records.make(
            kind(
                case=case.recorded(),
                row=row,
                implementation=name,
                baseline=case.implementations[0],
                unavailable=unavailable,
                **details[name],
            ),
            paper="all",
            table=TABLE,
            row=f"{row}: {_against(case, name)}",
            values=values[name],
            status=records.MEASURED,
            key=key(case, budget, described, flush),
            n=len(details[name].get("samples", [])) or None,
            device=described,
            wall_s=(time.perf_counter() - began) / len(values),
        )
        for name in values
    ]


def _against(case: Case, name: str) -> str:
    """The implementation's name, with the baseline unless that is the subject's default."""
    baseline = case.implementations[0]
    if baseline == case.subject.implementations[0]:
        return name
    return f"{name} (baseline)" if name == baseline else f"{name} against {baseline}"


def _available(
    case: Case, make: Callable[[Case, str, torch.device], T], device: torch.device
) -> tuple[dict[str, T], dict[str, str]]:
    """``make`` applied to each implementation, and why the others are unavailable."""
    available, unavailable = {}, {}
    for name in case.implementations:
        try:
            available[name] = make(case, name, device)
        except Exception as error:
            if name == case.implementations[0] and not isinstance(error, UNAVAILABLE):
                raise
            unavailable[name] = one_line(error)
    return available, unavailable


def _timed(
    case: Case, device: torch.device, budget: Budget, flush: bool
) -> tuple[dict[str, Values], dict[str, dict[str, Any]], dict[str, str]]:
    works, unavailable = _available(case, Case.work, device)
    if case.implementations[0] in unavailable:
        return {}, {}, unavailable
    refused: dict[str, Exception] = {}
    calls = {name: work.call for name, work in works.items()}
    measured = measure(calls, device, budget, refused, flush=flush)
    unavailable |= {name: one_line(error) for name, error in refused.items()}
    timed = list(measured.samples)
    taken = {name: _taken(case, works[name], name, device) for name in timed}
    values, details = {}, {}
    for name in timed:
        least = case.subject.least_bytes(case) if case.subject.least_bytes else 0
        values[name] = _values(measured, name, taken[name], taken[measured.baseline], least)
        details[name] = {
            "verdict": measured.verdict(name),
            "twin": measured.twin,
            "samples": _rounded(measured.samples[name]),
            "again": _rounded(measured.again) if name == measured.twin else None,
            "first_call_s": measured.first_calls[name],
            "jumps": measured.jumps,
            "cache": "emptied" if flush and device.type == "cuda" else "warm",
        }
    return values, details, unavailable


def _taken(case: Case, work: Work, name: str, device: torch.device) -> Values:
    """Resource counts of a call.

    Compiled code and CUDA graphs have their eager form's FLOPs; the peak is measured of compiled
    code on CUDA only.
    """
    if eager(name) == name:
        taken: Values = {**resources.count(work, device)}
        if not case.subject.least_bytes:
            taken |= _moved(case, name, device)
        return taken
    taken = {"flops": resources.count(case.work(eager(name), device), device)["flops"]}
    if device.type == "cuda" and name.endswith(COMPILED):
        taken["peak bytes"] = resources.peak(work.call, device)
    return taken


def _moved(case: Case, name: str, device: torch.device) -> Values:
    """Bytes that its operators read and write; empty if that depends on the data."""
    try:
        launched = dispatched(case, name, cuda=device.type == "cuda")
    except ValueError:
        return {}
    return {"moved bytes": sum(kernel.bytes for kernel in launched)}


def _values(
    measured: Measurement, name: str, taken: Values, baseline: Values, least_bytes: int
) -> Values:
    seconds, ratio = measured.seconds(name), measured.ratio(name)
    values = {
        "seconds": seconds.value,
        "seconds low": seconds.low,
        "seconds high": seconds.high,
        "ratio": ratio.value,
        "ratio low": ratio.low,
        "ratio high": ratio.high,
        "floor": measured.floor,
        **taken,
    }
    for what in ("saved", "peak"):
        if baseline.get(f"{what} bytes") and f"{what} bytes" in taken:
            values[f"{what} ratio"] = taken[f"{what} bytes"] / baseline[f"{what} bytes"]
    if taken.get("flops"):
        values["flops a second"] = taken["flops"] / seconds.value
    if least_bytes:
        values["least bytes"] = least_bytes
    for name in ("least bytes", "moved bytes"):
        if name in values:
            values[f"{name} a second"] = values[name] / seconds.value
    return values


def _rounded(seconds: Sequence[float]) -> list[float]:
    return [float(f"{value:.6g}") for value in seconds]


def one_line(error: Exception) -> str:
    """The error's first line, anonymous; with its type if the error is unexpected."""
    said = records.anonymous((str(error).splitlines() or [""])[0])
    return said if isinstance(error, UNAVAILABLE) else f"{type(error).__name__}: {said}"


def verify(
    device: torch.device, examples: int, operators: Collection[str], *, processes: int = 1
) -> Iterator[Record]:
    """Compare all implementations of the operators with the oracle, a record each.

    As `captionbench verify` does.
    """
    began = time.perf_counter()
    described = describe(device, torch.get_num_threads())
    made = table.rows(str(device), examples, operators, processes=processes)
    for operator, rows in groupby(made, lambda row: row.operator):
        yield verification(
            list(rows),
            f"{described.name}: {operator}",
            verification_key(described, examples, operator),
            described,
            time.perf_counter() - began,
        )
        began = time.perf_counter()


def verification(
    rows: list[Verified], row: str, key: str, described: Device, wall_s: float
) -> Record:
    """The record of comparisons with the oracle."""
    return records.make(
        Verification(rows=rows),
        paper="all",
        table="verification",
        row=row,
        values={"held": sum(row.passed for row in rows), "rows": len(rows)},
        status="same data",
        key=key,
        n=sum(row.cases for row in rows),
        device=described,
        wall_s=wall_s,
    )


def verification_key(described: Device, examples: int, operator: str) -> str:
    """Key of an operator's record of `verify`."""
    return records.key_of(verify, examples, described, operator)
