"""Records of what a case is predicted to take, and what was measured of the same, beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks import kinds, records
from benchmarks.perf.cases.case import UNAVAILABLE, Case
from benchmarks.perf.kernels import dispatched
from benchmarks.perf.roofline.devices import Device
from benchmarks.perf.roofline.roofline import BOUNDS, Prediction, predict
from benchmarks.records import Record

TABLE = "roofline"


def of_case(case: Case, implementation: str, device: Device) -> Prediction:
    """What one call of the case's implementation is predicted to take on the device.

    Raises:
        ValueError: the implementation is unavailable, what it launches depends on the data, or the
            device has no peak in the case's precision.
    """
    device.peak_of(case.precision)
    kernels = dispatched(case, implementation, cuda=not device.threads)
    return predict(kernels, device, case.precision)


def key(case: Case, device: Device) -> str:
    """Equal for what need not be predicted again."""
    return records.key_of([make_records, *case.subject.code], case.recorded(), device.to_dict())


def make_records(case: Case, device: Device) -> tuple[list[Record], dict[str, str]]:
    """A record for each of the case's implementations whose launches are known; why of the rest."""
    predictions: dict[str, Prediction] = {}
    unavailable = {}
    for name in case.implementations:
        try:
            predictions[name] = of_case(case, name, device)
        except UNAVAILABLE as error:
            unavailable[name] = str(error).splitlines()[0]
    predicted = [
        records.make(
            kinds.Prediction(
                case=case.recorded(),
                row=case.row,
                implementation=name,
                device=device.to_dict(),
            ),
            paper="all",
            table=TABLE,
            row=f"{case.row}: {name}",
            values=values(prediction),
            status=records.PREDICTED,
            key=key(case, device),
            device=described(device),
        )
        for name, prediction in predictions.items()
    ]
    return predicted, unavailable


def values(prediction: Prediction) -> dict[str, float]:
    """A prediction as a record has it."""
    return {
        "seconds": prediction.seconds,
        "graphed seconds": prediction.graphed,
        **{f"{bound} share": prediction.share(bound) for bound in BOUNDS},
        "launches": prediction.launches,
        "flops": prediction.flops,
        "bytes": prediction.bytes,
    }


def described(device: Device) -> records.Device:
    """The device of a prediction as a record has it: never one that computed anything."""
    return records.Device(kind="description", name=device.name, threads=device.threads)


@dataclass(frozen=True)
class Beside:
    """A measured time beside the predicted one."""

    predicted: Record
    measured: Record

    @property
    def error_percent(self) -> float:
        """How far the prediction is off: below 0 where the device is slower than predicted."""
        seconds = self.measured.values["seconds"]
        return float(100 * (self.predicted.values["seconds"] / seconds - 1))


def beside(predicted: Record, known: Sequence[Record]) -> Beside | None:
    """The newest time measured of what a record predicts, on the device it predicts it for."""
    details = predicted.details
    device = Device(**details.device)
    for record in sorted(records.of_kind(known, kinds.Timing), key=lambda r: r.time, reverse=True):
        same = (record.details.row, record.details.implementation) == (
            details.row,
            details.implementation,
        )
        if same and device.is_of(record):
            return Beside(predicted, record)
    return None
