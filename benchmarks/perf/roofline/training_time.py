"""How long the papers' training would take: steps times the time of a step, v1 Table 1, v2 VII.

Steps follow from what the papers print (`schedules.json`: epochs, batch sizes, examples). The time
of a step is the roofline's or, where a record of the same step on that device exists, measured; a
sum of them is a prediction either way. What the papers leave open is assumed, and every record says
what.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks import papers, records
from benchmarks.files import read_json
from benchmarks.kinds import Timing, TrainingStage, TrainingTime
from benchmarks.perf.cases import self_critical
from benchmarks.perf.cases.case import Case, Sizes
from benchmarks.perf.cases.subjects import SUBJECTS
from benchmarks.perf.kernels import Kernel, dispatched
from benchmarks.perf.roofline.devices import Device, described
from benchmarks.perf.roofline.prediction import described as device_of_record
from benchmarks.perf.roofline.roofline import predict
from benchmarks.records import Record
from torch_impl.layers.transformer import Mixer

FILE = Path(__file__).with_name("schedules.json")
DROPOUT = {"xe": 0.3, "sc": 0.1}
PROBES = (4, 8)
"""Batches whose kernels give those of any other."""


@dataclass(frozen=True)
class Stage:
    """Some epochs of one objective at one batch size.

    Args:
        objective: "xe", cross-entropy, or "sc", self-critical.
        epochs: over all examples.
        batch: of a step, on all GPUs together.
        examples: of an epoch; None for the captions or images of MS-COCO.
        end_to_end: whether the backbone computes, too, both passes.
        gpus: that share a batch.
    """

    objective: str
    epochs: int
    batch: int
    examples: int | None = None
    end_to_end: bool = False
    gpus: int = 1

    def steps(self, data: Mapping[str, Any]) -> int:
        """Of all epochs, the last of each with what is left."""
        images: int = data["images"]
        captions = images * data["captions_per_image"]
        usual = captions if self.objective == "xe" else images
        return self.epochs * math.ceil((self.examples or usual) / self.batch)


def content() -> Any:
    """`schedules.json`."""
    return read_json(FILE, "training schedules")


def tables() -> dict[str, str]:
    """The papers whose training is timed here, and the table that says so."""
    return {paper: entry["table"] for paper, entry in content()["papers"].items()}


def key(paper: str) -> str:
    """Equal for what need not be predicted again."""
    schedules = content()
    devices = [device.to_dict() for device in described().values()]
    about = schedules["papers"][paper], schedules["data"], schedules["backbone"]
    return records.key_of(make_records, paper, about, devices)


def make_records(paper: str, made: Iterable[Record] = ()) -> list[Record]:
    """A record for each row of the paper's table, for its own device, with the others in details.

    Args:
        paper: one of `tables`.
        made: records; where one times a step on a described device, that time is taken.
    """
    schedules = content()
    entry = schedules["papers"][paper]
    timings = records.of(made, Timing)
    kinds = [(entry["device"], entry["precision"])]
    kinds += [
        (name, precision)
        for name, device in described().items()
        for precision in ("float32", "tf32")
        if precision in device.peak and (name, precision) not in kinds
    ]
    columns = {
        (name, precision): _columns(schedules, entry, described()[name], precision, timings)
        for name, precision in kinds
    }
    (own, stages), *others = columns.values()
    device = described()[entry["device"]]
    on_own = {precision: of for (name, precision), of in columns.items() if name == device.name}
    compared = [_beside_print(paper, entry, own), *_by_precision(entry, on_own)]
    return [
        records.make(
            TrainingTime(
                assumptions=[
                    f"the roofline of one {device.name}, {entry['precision']}: {device.source}",
                    device.launch_source,
                    *entry["assumptions"],
                    *compared,
                ],
                device=device.to_dict(),
                unit=entry["unit"]["name"],
                stages=[TrainingStage(**stage) for stage in stages[row]],
                on_other_devices=[
                    {"device": name, "precision": precision, **of_other[row]}
                    for (name, precision), (of_other, _) in zip(kinds[1:], others, strict=True)
                ],
            ),
            paper=paper,
            table=entry["table"],
            row=row,
            values=values,
            status=records.PREDICTED,
            key=key(paper),
            device=device_of_record(device),
        )
        for row, values in own.items()
    ]


Columns = dict[str, dict[str, float]]
"""Row to column to number."""


def _columns(
    schedules: Any, entry: Any, device: Device, precision: str, timings: Sequence[Record]
) -> tuple[Columns, dict[str, list[dict[str, Any]]]]:
    """The numbers of the table, and the stages that they are sums of."""
    columns: Columns = {}
    stages: dict[str, list[dict[str, Any]]] = {}

    def seconds(stage: Stage) -> tuple[float, str]:
        return _step(schedules, entry, stage, device, precision, timings)

    for time in entry["times"]:
        parts = [Stage(**stage) for stage in time["stages"]]
        total, listed = training_seconds(parts, schedules["data"], seconds)
        columns.setdefault(time["row"], {})[time["column"]] = total / entry["unit"]["seconds"]
        named = [{"column": time["column"], **stage} for stage in listed]
        stages.setdefault(time["row"], []).extend(named)
    for ratio in entry["ratios"]:
        (row, column), (base, base_column) = ratio["of"], ratio["over"]
        columns[ratio["row"]][ratio["column"]] = columns[row][column] / columns[base][base_column]
    return columns, stages


def _beside_print(paper: str, entry: Any, predicted: Columns) -> str:
    """How the times come out beside the print, and why so."""
    table = papers.load(paper).table(entry["table"])
    shares = []
    for time in entry["times"]:
        printed = table.cell(time["row"], time["column"]).meant
        if isinstance(printed, float):
            shares.append(predicted[time["row"]][time["column"]] / printed)
    return (
        "a roofline bounds the time of a step from below, whatever keeps a device from its peak: "
        f"{entry['unit']['name']} come to {min(shares):.2f} to {max(shares):.2f} of the print, "
        "and ratios shift with whichever of their two times is bounded less closely"
    )


def _by_precision(
    entry: Any, found: Mapping[str, tuple[Columns, dict[str, list[dict[str, Any]]]]]
) -> list[str]:
    """What ratios depend on: their values in each precision, and the backbone's part in each."""
    said = []
    for precision, (columns, stages) in found.items() if len(found) > 1 else ():
        ratios = (
            f"{ratio['row']} {columns[ratio['row']][ratio['column']]:.2f}"
            for ratio in entry["ratios"]
            if ratio["of"] != ratio["over"]
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
    stages: Sequence[Stage],
    data: Mapping[str, Any],
    step: Callable[[Stage], tuple[float, str]],
) -> tuple[float, list[dict[str, Any]]]:
    """All steps of the stages, each as long as ``step`` says, and the stages one by one."""
    listed: list[dict[str, Any]] = []
    total = 0.0
    for stage in stages:
        seconds, source = step(stage)
        total += stage.steps(data) * seconds
        listed.append(
            {
                "objective": stage.objective,
                "epochs": stage.epochs,
                "batch": stage.batch,
                "steps": stage.steps(data),
                "end_to_end": stage.end_to_end,
                "step_s": seconds,
                "source": source,
            }
        )
    return total, listed


def _step(
    schedules: Any,
    entry: Any,
    stage: Stage,
    device: Device,
    precision: str,
    timings: Sequence[Record],
) -> tuple[float, str]:
    """The seconds of a step, and whether they were "measured" or "predicted"."""
    batch = math.ceil(stage.batch / stage.gpus)
    case, implementation = _case(stage.objective, entry["model"], batch)
    case = replace(case, precision=precision)
    seconds, source = None, "measured"
    for record in sorted(timings, key=lambda r: r.time):
        of = record.details
        if (of.row, of.implementation) == (case.row, implementation) and device.is_of(record):
            seconds = record.values["seconds"]
    if seconds is None:
        kernels = _kernels(stage.objective, tuple(sorted(entry["model"].items())), batch)
        seconds, source = predict(kernels, device, precision).seconds, "predicted"
    if stage.end_to_end:
        backbone = schedules["backbone"]
        flops = 2 * backbone["passes"] * backbone["macs"] * batch
        seconds += flops / device.peak_of(precision)
        source += ", its backbone predicted"
    return seconds, source


def _case(objective: str, model: Mapping[str, Any], batch: int) -> tuple[Case, str]:
    sizes = Sizes(batch=batch, dropout=DROPOUT[objective], **model)
    subject = SUBJECTS["xe-step"] if objective == "xe" else self_critical.SUBJECT
    attends = all(Mixer.parse(mixer).attends for mixer in (sizes.encoder, sizes.decoder))
    implementation = "attention" if attends else "literal"
    return Case(subject, (implementation,), sizes), implementation


@cache
def _kernels(objective: str, model: tuple[tuple[str, Any], ...], batch: int) -> list[Kernel]:
    """The kernels of a step."""
    small, large = (_probe(objective, model, probe) for probe in PROBES)
    return at_batch(small, large, batch)


@cache
def _probe(
    objective: str, model: tuple[tuple[str, Any], ...], batch: int
) -> tuple[int, list[Kernel]]:
    case, implementation = _case(objective, dict(model), batch)
    # the self-critical step is made with its optimiser warm
    return batch, dispatched(case, implementation, cuda=True, warm_up=objective == "xe")


def at_batch(
    small: tuple[int, Sequence[Kernel]], large: tuple[int, Sequence[Kernel]], batch: int
) -> list[Kernel]:
    """The kernels at any batch size, by those at two: each is a constant and a multiple of it.

    Raises:
        ValueError: the two are not the same operations.
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
