"""Peak FLOP/s, bandwidth and launch time of devices: from data sheets or, for a CPU, measured.

The data sheets' numbers are in `devices.json`, with their sources. None can be trusted for one or
two cores of a CPU, so a CPU is described by the ceilings that ``captionbench time --only ceilings``
measures.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import torch
from msgspec import Meta, Struct

from benchmarks.errors import InputError
from benchmarks.files import read_typed
from benchmarks.kinds import Measured
from benchmarks.perf import case_records
from benchmarks.perf.cases import suites
from benchmarks.perf.cases.ceilings import COPY, OPERATIONS, PRODUCT
from benchmarks.perf.timing import Budget
from benchmarks.records import Record, of_kind

FILE = Path(__file__).with_name("devices.json")
CPU = "cpu"


@dataclass(frozen=True)
class DeviceSpec:
    """One accelerator, or some threads of a CPU."""

    name: str  # as on the command line; of a CPU with its threads
    source: str  # where the numbers come from
    peak: Mapping[str, float]  # FLOP/s of matrix products, by precision
    bandwidth: float  # bytes/s, read and written
    launch: float  # least seconds of an operation
    launch_source: str  # where that number comes from
    torch_name: str  # the device's name in records
    threads: int = 0  # of a CPU; 0 for a GPU
    year: int | None = None  # of its release; None for a CPU
    memory: float | None = None  # bytes; None for a CPU

    def __post_init__(self) -> None:
        """Raise ValueError unless all speeds and times are above 0."""
        speeds = {"bandwidth": self.bandwidth, "launch": self.launch, **self.peak}
        for what, value in speeds.items():
            if not value > 0:
                raise ValueError(f"device {self.name}: {what} is {value}, expected above 0")

    def peak_of(self, precision: str) -> float:
        """Peak FLOP/s of matrix products in a precision.

        Raises:
            ValueError: the device has none in that precision.
        """
        if precision not in self.peak:
            raise ValueError(
                f"device {self.name}: no peak in {precision}, expected one of "
                f"{', '.join(self.peak)}"
            )
        return self.peak[precision]

    def is_of(self, record: Record) -> bool:
        """Whether the record was measured on this device."""
        device = record.device
        used = device.threads or 0 if device.kind == CPU else 0
        return (device.name, used) == (self.torch_name, self.threads)

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


class _Board(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    year: int
    source: str
    torch_name: str
    gpus: Annotated[int, Meta(ge=1)]
    peak: dict[str, float]
    bandwidth: float
    memory: float


class _Launch(Struct, frozen=True, forbid_unknown_fields=True):
    seconds: float
    assumption: str


class _Sheets(Struct, frozen=True, forbid_unknown_fields=True):
    about: str
    launch: _Launch
    devices: list[_Board]


@cache
def load_specs() -> dict[str, DeviceSpec]:
    """All devices of `devices.json` by name, oldest first."""
    known = read_typed(FILE, _Sheets, "descriptions of devices")
    return {
        board.name: DeviceSpec(
            name=board.name,
            source=board.source + (f"; one of the board's {n} GPUs" if n > 1 else ""),
            peak={name: value / n for name, value in board.peak.items()},
            bandwidth=board.bandwidth / n,
            launch=known.launch.seconds,
            launch_source=known.launch.assumption,
            torch_name=board.torch_name,
            year=board.year,
            memory=board.memory / n,
        )
        for board in sorted(known.devices, key=lambda board: board.year)
        if (n := board.gpus)
    }


def find_spec(name: str) -> DeviceSpec:
    """The device of `devices.json` with that name, in upper or lower case.

    Raises:
        InputError: there is none.
    """
    for device in load_specs().values():
        if device.name.casefold() == name.casefold():
            return device
    raise InputError(
        f"--device {name}: no such description, expected one of {CPU}, {', '.join(load_specs())}"
    )


def spec_from_records(known: Iterable[Record], name: str, threads: int) -> DeviceSpec | None:
    """The device by its newest ceilings of each precision; None if none were measured.

    ``name`` is that of records, ``threads`` are of the CPU, 0 for a GPU.
    """
    newest: dict[str, Record] = {}
    for record in sorted(of_kind(known, Measured), key=lambda r: r.time):
        if record.details.case.subject != "ceilings":
            continue
        device = record.device
        used = device.threads if device.kind == CPU else 0
        if (device.name, used) == (name, threads) and OPERATIONS in record.values:
            newest[record.details.case.precision] = record
    if not newest:
        return None
    last = max(newest.values(), key=lambda r: r.time)
    return DeviceSpec(
        name=f"{name}, {threads} thread{'s' if threads > 1 else ''}" if threads else name,
        source=f"measured {last.time[:10]}",
        peak={precision: record.values[PRODUCT] for precision, record in newest.items()},
        bandwidth=last.values[COPY],
        launch=1 / last.values[OPERATIONS],
        launch_source="measured: a sum of one number",
        torch_name=name,
        threads=threads,
    )


def local_device(device: torch.device, threads: int, known: Sequence[Record]) -> DeviceSpec:
    """This device by its newest recorded ceilings; without any, they are measured now."""
    name = case_records.describe(device, threads).name
    used = threads if device.type == CPU else 0
    local = spec_from_records(known, name, used)
    if local is None:
        print("measuring this device's ceilings ...", file=sys.stderr)
        case = suites.case("ceilings", ("device",))
        ceilings = case_records.time_case(case, device, threads, Budget(), strict=True)
        local = spec_from_records(ceilings, name, used)
    assert local is not None
    return local
