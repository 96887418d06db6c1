"""Predicted training times of the papers (v1 Table 1, v2 Table VII): steps times seconds per step.

Steps follow from what the papers print (`schedules.json`: epochs, batch sizes, examples). The
seconds per step are measured if there is a record of that step on that device, else the roofline's;
their sum is a prediction either way. Every record lists what was assumed where the papers are
silent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, to_builtins

from benchmarks import papers, records
from benchmarks.files import read_typed
from benchmarks.kinds import Timing, TrainingStage, TrainingTime
from benchmarks.perf.cases import self_critical
from benchmarks.perf.cases.case import FULL_PRECISIONS, Case, Sizes
from benchmarks.perf.cases.suites import SUBJECTS
from benchmarks.perf.kernels import Kernel, dispatched
from benchmarks.perf.roofline.devices import DeviceSpec, load_specs
from benchmarks.perf.roofline.prediction import as_record_device
from benchmarks.perf.roofline.roofline import predict
from benchmarks.records import Record
from torch_impl.layers.transformer import Mixer

FILE = Path(__file__).with_name("schedules.json")
DROPOUT = {"xe": 0.3, "sc": 0.1}
PROBES = (4, 8)
"""Batch sizes whose kernels are extrapolated to any other, see `at_batch`."""
Place = tuple[str, str]
"""Row and column."""
Columns = dict[str, dict[str, float]]
"""Numbers by row and column."""


class _Part(Struct, frozen=True, forbid_unknown_fields=True):
    pass


class _Data(_Part, frozen=True):
    images: int
    captions_per_image: int
    source: str


class _Backbone(_Part, frozen=True):
    macs: float
    passes: int
    source: str


class ScheduleStage(_Part, frozen=True):
    """Some epochs of one objective at one batch size."""

    objective: Literal["xe", "sc"]  # "xe", cross-entropy, or "sc", self-critical
    epochs: int  # over all examples
    batch: int  # per step, over all GPUs
    examples: int | None = None  # per epoch; None: MS-COCO's captions (xe) or images (sc)
    end_to_end: bool = False  # whether the backbone is trained too
    gpus: int = 1  # that share a batch

    def steps(self, data: _Data) -> int:
        """Steps of all epochs; the last batch of an epoch may be smaller."""
        usual = data.images * (data.captions_per_image if self.objective == "xe" else 1)
        return self.epochs * math.ceil((self.examples or usual) / self.batch)


class _Time(_Part, frozen=True):
    row: str
    column: str
    stages: tuple[ScheduleStage, ...]


class _Ratio(_Part, frozen=True):
    row: str
    column: str
    of: Place
    over: Place


class _Unit(_Part, frozen=True):
    name: str
    seconds: float


class Schedule(_Part, frozen=True):
    """A paper's training; ``model`` has the `Sizes` that differ from v2's."""

    table: str
    device: str
    precision: str
    unit: _Unit
    model: dict[str, int | str]
    assumptions: list[str]
    times: tuple[_Time, ...]
    ratios: tuple[_Ratio, ...]


class _Schedules(_Part, frozen=True):
    about: str
    data: _Data
    backbone: _Backbone
    papers: dict[str, Schedule]


@cache
def schedules() -> _Schedules:
    """Load `schedules.json`.

    Raises:
        InputError: it is damaged.
    """
    return read_typed(FILE, _Schedules, "training schedules")


def tables() -> dict[str, str]:
    """By paper, the table of its training times."""
    return {paper: schedule.table for paper, schedule in schedules().papers.items()}


def key(paper: str) -> str:
    """Key of the records of a paper's training times."""
    known = schedules()
    about = to_builtins((known.papers[paper], known.data, known.backbone))
    devices = [device.to_dict() for device in load_specs().values()]
    return records.key_of(make_records, paper, about, devices)


@dataclass(frozen=True)
class _Column:
    """A paper's times on one device in one precision."""

    schedule: Schedule  # of the training
    device: DeviceSpec
    precision: str  # of matrix products
    timings: Sequence[Record]  # measured steps, used in place of predictions

    def numbers(self) -> tuple[Columns, dict[str, list[dict[str, Any]]]]:
        """The table's numbers, and by row the stages that they are sums of."""
        columns: Columns = {}
        stages: dict[str, list[dict[str, Any]]] = {}
        for time in self.schedule.times:
            total, listed = training_seconds(time.stages, schedules().data, self.step)
            columns.setdefault(time.row, {})[time.column] = total / self.schedule.unit.seconds
            named = [{"column": time.column, **stage} for stage in listed]
            stages.setdefault(time.row, []).extend(named)
        for ratio in self.schedule.ratios:
            one, over = (columns[row][column] for row, column in (ratio.of, ratio.over))
            columns[ratio.row][ratio.column] = one / over
        return columns, stages

    def step(self, stage: ScheduleStage) -> tuple[float, str]:
        """The seconds of a step, and whether they were "measured" or "predicted"."""
        batch = math.ceil(stage.batch / stage.gpus)
        case, implementation = _case(stage.objective, self.schedule.model, batch)
        what = replace(case, precision=self.precision).row, implementation
        measured = [
            record
            for record in self.timings
            if (record.details.row, record.details.implementation) == what
            and self.device.is_of(record)
        ]
        if measured:
            seconds = max(measured, key=lambda record: record.time).values["seconds"]
            source = "measured"
        else:
            model = tuple(sorted(self.schedule.model.items()))
            kernels = _kernels(stage.objective, model, batch)
            seconds = predict(kernels, self.device, self.precision).seconds
            source = "predicted"
        if stage.end_to_end:
            backbone = schedules().backbone
            flops = 2 * backbone.passes * backbone.macs * batch
            seconds += flops / self.device.peak_of(self.precision)
            source += ", its backbone predicted"
        return seconds, source


def make_records(paper: str, timed: Iterable[Record] = ()) -> list[Record]:
    """A record for each row of the paper's table on its own device; details have the others.

    Steps ``timed`` on a described device replace predicted ones.
    """
    schedule = schedules().papers[paper]
    timings = records.of_kind(timed, Timing)
    device = load_specs()[schedule.device]
    own = device.name, schedule.precision
    known = load_specs().values()
    every = [
        (d.name, precision) for d in known for precision in FULL_PRECISIONS if precision in d.peak
    ]
    found = {
        (name, precision): _Column(schedule, load_specs()[name], precision, timings).numbers()
        for name, precision in dict.fromkeys([own, *every])
    }
    columns, stages = found[own]
    here = {precision: numbers for (name, precision), numbers in found.items() if name == own[0]}
    return [
        records.make(
            TrainingTime(
                assumptions=[
                    f"the roofline of one {device.name}, {schedule.precision}: {device.source}",
                    device.launch_source,
                    *schedule.assumptions,
                    _beside_print(paper, schedule, columns),
                    *_by_precision(schedule, here),
                ],
                device=device.to_dict(),
                unit=schedule.unit.name,
                stages=[TrainingStage(**stage) for stage in stages[row]],
                on_other_devices=[
                    {"device": name, "precision": precision, **numbers[row]}
                    for (name, precision), (numbers, _) in found.items()
                    if (name, precision) != own
                ],
            ),
            paper=paper,
            table=schedule.table,
            row=row,
            values=values,
            status=records.PREDICTED,
            key=key(paper),
            device=as_record_device(device),
        )
        for row, values in columns.items()
    ]


def _beside_print(paper: str, schedule: Schedule, predicted: Columns) -> str:
    """How the predicted times compare with the printed ones, and why."""
    table = papers.load(paper).table(schedule.table)
    printed = ((time, table.cell(time.row, time.column).meant) for time in schedule.times)
    shares = [
        predicted[t.row][t.column] / value for t, value in printed if isinstance(value, float)
    ]
    return (
        "a roofline bounds the time of a step from below, whatever keeps a device from its peak: "
        f"{schedule.unit.name} come to {min(shares):.2f} to {max(shares):.2f} of the print, "
        "and ratios shift with whichever of their two times is bounded less closely"
    )


def _by_precision(
    schedule: Schedule, found: Mapping[str, tuple[Columns, dict[str, list[dict[str, Any]]]]]
) -> list[str]:
    """By precision, the ratios and the backbone's share of the time, in words."""
    said = []
    for precision, (columns, stages) in found.items() if len(found) > 1 else ():
        ratios = (
            f"{ratio.row} {columns[ratio.row][ratio.column]:.2f}"
            for ratio in schedule.ratios
            if ratio.of != ratio.over
        )
        text = f"ratios depend on the precision; in {precision}: {', '.join(ratios)}"
        for row, listed in stages.items():
            seconds = [(stage["steps"] * stage["step_s"], stage["end_to_end"]) for stage in listed]
            part = sum(s for s, end_to_end in seconds if end_to_end) / sum(s for s, _ in seconds)
            if part:
                text += f"; stages with the backbone are {100 * part:.0f} % of the time of {row}"
        said.append(text)
    return said


def training_seconds(
    stages: Iterable[ScheduleStage], data: _Data, step: Callable[[ScheduleStage], tuple[float, str]]
) -> tuple[float, list[dict[str, Any]]]:
    """Total seconds of the stages, at ``step``'s seconds per step, and each stage."""
    listed = []
    for stage in stages:
        seconds, source = step(stage)
        names = ("objective", "epochs", "batch", "end_to_end")
        about = {name: getattr(stage, name) for name in names}
        listed.append({**about, "steps": stage.steps(data), "step_s": seconds, "source": source})
    return sum(stage["steps"] * stage["step_s"] for stage in listed), listed


def _case(objective: str, model: Mapping[str, Any], batch: int) -> tuple[Case, str]:
    sizes = Sizes(batch=batch, dropout=DROPOUT[objective], **model)
    subject = SUBJECTS["xe-step"] if objective == "xe" else self_critical.SUBJECT
    attends = all(Mixer.parse(mixer).attends for mixer in (sizes.encoder, sizes.decoder))
    implementation = "attention" if attends else "literal"
    return Case(subject, (implementation,), sizes), implementation


@cache
def _kernels(objective: str, model: tuple[tuple[str, Any], ...], batch: int) -> list[Kernel]:
    small, large = (_probe(objective, model, probe) for probe in PROBES)
    return at_batch(small, large, batch)


@cache
def _probe(
    objective: str, model: tuple[tuple[str, Any], ...], batch: int
) -> tuple[int, list[Kernel]]:
    case, implementation = _case(objective, dict(model), batch)
    # the self-critical step comes with a warm optimiser
    return batch, dispatched(case, implementation, cuda=True, warm_up=objective == "xe")


def at_batch(
    small: tuple[int, Sequence[Kernel]], large: tuple[int, Sequence[Kernel]], batch: int
) -> list[Kernel]:
    """The kernels at any batch size, by linear extrapolation from two.

    Raises:
        ValueError: the two batch sizes launch different operations.
    """
    (a, first), (b, second) = small, large
    if [kernel.name for kernel in first] != [kernel.name for kernel in second]:
        raise ValueError(f"batches of {a} and {b} launch other operations, expected the same ones")
    part = (batch - a) / (b - a)
    return [
        replace(
            x,
            flops=x.flops + part * (y.flops - x.flops),
            bytes=x.bytes + part * (y.bytes - x.bytes),
        )
        for x, y in zip(first, second, strict=True)
    ]
