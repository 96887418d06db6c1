"""Records of predicted times, compared with measured ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks import kinds, records
from benchmarks.perf.cases.case import UNAVAILABLE, Case
from benchmarks.perf.kernels import dispatched
from benchmarks.perf.roofline.devices import DeviceSpec
from benchmarks.perf.roofline.roofline import BOUNDS, Prediction, predict
from benchmarks.records import Record

TABLE = "roofline"


def of_case(case: Case, implementation: str, device: DeviceSpec) -> Prediction:
    """Predict one call of the case's implementation on the device.

    Raises:
        ValueError: the implementation is unavailable, its launches depend on the data, or the
            device has no peak in the case's precision.
    """
    device.peak_of(case.precision)
    kernels = dispatched(case, implementation, cuda=not device.threads)
    return predict(kernels, device, case.precision)


def key(case: Case, device: DeviceSpec) -> str:
    """Key of a case's predictions on a device."""
    return records.key_of([make_records, *case.subject.code], case.recorded(), device.to_dict())


def make_records(case: Case, device: DeviceSpec) -> tuple[list[Record], dict[str, str]]:
    """A record per implementation whose launches are known, and why the others' are not."""
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
            device=as_record_device(device),
        )
        for name, prediction in predictions.items()
    ]
    return predicted, unavailable


def values(prediction: Prediction) -> dict[str, float]:
    """The values of a prediction's record."""
    return {
        "seconds": prediction.seconds,
        "graphed seconds": prediction.graphed,
        **{f"{bound} share": prediction.share(bound) for bound in BOUNDS},
        "launches": prediction.launches,
        "flops": prediction.flops,
        "bytes": prediction.bytes,
    }


def as_record_device(device: DeviceSpec) -> records.Device:
    """The device of a prediction's record: a description, not one that computed."""
    return records.Device(kind="description", name=device.name, threads=device.threads)


@dataclass(frozen=True)
class PredictedAndMeasured:
    """A predicted time and the measured one."""

    predicted: Record
    measured: Record

    @property
    def error_percent(self) -> float:
        """Error of the prediction: negative if the device is slower than predicted."""
        seconds = self.measured.values["seconds"]
        return float(100 * (self.predicted.values["seconds"] / seconds - 1))


def find_measurement(predicted: Record, known: Sequence[Record]) -> PredictedAndMeasured | None:
    """The newest measurement of the predicted case on the same device; None without one."""
    details = predicted.details
    device = DeviceSpec(**details.device)
    for record in sorted(records.of_kind(known, kinds.Timing), key=lambda r: r.time, reverse=True):
        same = (record.details.row, record.details.implementation) == (
            details.row,
            details.implementation,
        )
        if same and device.is_of(record):
            return PredictedAndMeasured(predicted, record)
    return None
