"""``captionbench predict``: predict times on a device, and compare them with measured ones."""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from benchmarks import records
from benchmarks.cli import case_options
from benchmarks.cli.options import add_records, own_records, thread_count
from benchmarks.errors import InputError
from benchmarks.perf.cases.case import COMPILED, Case
from benchmarks.perf.roofline import compiled, prediction
from benchmarks.perf.roofline.devices import CPU, DeviceSpec, find_spec, load_specs, local_device
from benchmarks.perf.roofline.roofline import BOUNDS
from benchmarks.records import Record


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device", help=f"{CPU} (default), as measured here, or {', '.join(load_specs())}"
    )
    parser.add_argument(
        "--threads", type=thread_count, default=1, help="CPU threads: a number or all (default: 1)"
    )
    case_options.configure(parser)
    parser.set_defaults(suite=None)  # the default is the device's
    parser.add_argument(
        "--kernels",
        action="store_true",
        help="compile the Triton kernels ahead of time for sm_80, sm_89 and sm_90 instead: "
        "registers, spills, shared memory, occupancy; nothing is run",
    )
    add_records(parser)
    parser.add_argument("--json", action="store_true", help="print the records, not tables")
    parser.add_argument("--list", action="store_true", help="print the devices and their sources")


def run(arguments: argparse.Namespace) -> int:
    """Predict what has no record yet, and print it with the measured times."""
    if arguments.list:
        _print_devices()
        return 0
    if arguments.kernels:
        return _compile_kernels(arguments)
    known = records.load(records.PUBLISHED, records.LOCAL)
    if arguments.out and arguments.out.is_file():
        known += records.read(arguments.out)
    on_cpu = arguments.device is None or arguments.device.casefold() == CPU
    if on_cpu:
        device = local_device(torch.device(CPU), arguments.threads, known)
    else:
        device = find_spec(arguments.device)
    arguments.suite = arguments.suite or ("cpu" if on_cpu else "gpu")
    cases = _cases(arguments, device)
    with own_records(arguments, "prediction.jsonl") as path:
        return _predict(arguments, device, cases, known, path)


def _compile_kernels(arguments: argparse.Namespace) -> int:
    if importlib.util.find_spec("triton") is None:
        raise InputError("--kernels: Triton is not installed, expected its package")
    calls = []
    with own_records(arguments, "compiled.jsonl") as path:
        known = records.read(path) if path is not None and path.exists() else []
        total = len(compiled.SHAPES) * len(compiled.PRECISIONS) * len(compiled.ARCHITECTURES)
        rows = compiled.make_records(known)
        for record in tqdm(rows, total=total, unit="call", file=sys.stderr, disable=None):
            if record not in known and path:
                records.append([record], path)
            calls.append(record)
    if arguments.json:
        print(json.dumps(records.to_json(calls), indent=2))
        return 0
    for record in calls:
        numbers = ", ".join(f"{name} {value:.4g}" for name, value in record.values.items())
        print(f"{record.what.row}\n    {numbers}")
    print(
        "compiled, not run: maxima over the launches of both passes, of occupancy the minimum; "
        "sums of bytes and FLOPs"
    )
    return 0


def _predict(
    arguments: argparse.Namespace,
    device: DeviceSpec,
    cases: Sequence[Case],
    known: Sequence[Record],
    path: Path | None,
) -> int:
    predicted: list[Record] = []
    lines: list[str] = []
    for case in tqdm(cases, unit="case", file=sys.stderr, disable=None):
        key = prediction.key(case, device)
        predictions = [record for record in known if record.key == key]
        unavailable: dict[str, str] = {}
        if not predictions:
            predictions, unavailable = prediction.make_records(case, device)
            if path:
                records.append(predictions, path)
        predicted += predictions
        lines += _lines(case, predictions, unavailable, known)
    if arguments.json:
        print(json.dumps([_with_measured(record, known) for record in predicted], indent=2))
        return 0
    print(f"{device.name}: {device.source}")
    print(f"launch {1e6 * device.launch:.3g} us: {device.launch_source}")
    print("\n".join(lines))
    print(f"{path}: the records" if path else "no records kept of tiny sizes (--out keeps them)")
    return 0


def _cases(arguments: argparse.Namespace, device: DeviceSpec) -> list[Case]:
    """The suite's timed cases, in the precisions that the device has a peak in."""
    for dtype in arguments.precision or ():
        try:
            device.peak_of(dtype)
        except ValueError as error:
            raise InputError(f"--precision {dtype}: {error}") from None
    chosen = case_options.chosen(arguments, torch.device(CPU if device.threads else "cuda"))
    names: dict[Case, dict[str, None]] = {}
    for case in chosen:
        if case.subject.make and case.precision in device.peak:
            eager = [name for name in case.implementations if not name.endswith(COMPILED)]
            names.setdefault(replace(case, implementations=()), {}).update(dict.fromkeys(eager))
    cases = [
        replace(case, implementations=tuple(eagers)) for case, eagers in names.items() if eagers
    ]
    if not cases:
        raise InputError(
            f"no case is left that is timed, is not compiled and has a peak on {device.name}"
        )
    return cases


def _with_measured(record: Record, known: Sequence[Record]) -> dict[str, Any]:
    pair = prediction.find_measurement(record, known)
    measured_here = pair and {
        "seconds": pair.measured.values["seconds"],
        "key": pair.measured.key,
        "error_percent": pair.error_percent,
    }
    return {**records.to_json(record), "measured": measured_here}


def _lines(
    case: Case, predicted: Sequence[Record], unavailable: Mapping[str, str], known: Sequence[Record]
) -> list[str]:
    """A case's predictions as lines of a table."""
    lines = [f"\n{case.row}"]
    for record in predicted:
        numbers = record.values
        shares = ", ".join(f"{bound} {100 * numbers[f'{bound} share']:.0f} %" for bound in BOUNDS)
        measured_here = prediction.find_measurement(record, known)
        said = "not run"
        if measured_here:
            seconds = measured_here.measured.values["seconds"]
            error = measured_here.error_percent
            said = f"measured {1000 * seconds:.4g} ms, prediction {error:+.0f} %"
        lines.append(
            f"  {record.details.implementation:12}predicted "
            f"{1000 * numbers['seconds']:.4g} ms  {shares}  {numbers['launches']:.0f} launches  "
            f"{numbers['flops'] / 1e9:.4g} GFLOP  {numbers['bytes'] / 1e9:.4g} GB  {said}"
        )
        if "graphed seconds" in numbers and not record.details.device["threads"]:
            lines[-1] += f"  as CUDA graphs {1000 * numbers['graphed seconds']:.4g} ms"
    return lines + [f"  {name}: not predicted ({why})" for name, why in unavailable.items()]


def _print_devices() -> None:
    for device in load_specs().values():
        peaks = ", ".join(f"{name} {peak / 1e12:.4g}" for name, peak in device.peak.items())
        print(
            f"{device.name:10}{device.year}  {device.bandwidth / 1e9:.4g} GB/s  "
            f"{(device.memory or 0) / 1e9:.4g} GB  TFLOP/s: {peaks}\n{'':10}{device.source}"
        )
    launch = next(iter(load_specs().values()))
    print(f"launch {1e6 * launch.launch:.3g} us: {launch.launch_source}")
