"""The roofline: time = sum over kernels of max(FLOPs / peak, bytes / bandwidth, launch).

It is a lower bound for these kernels one after another: no product reaches its peak, and a GPU that
waits for its host shows as launches.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.perf.kernels import Kernel
from benchmarks.perf.roofline.devices import DeviceSpec

BOUNDS = ("compute", "memory", "launch")


@dataclass(frozen=True)
class Prediction:
    """Predicted seconds of a call, by what bounds its kernels."""

    compute: float  # of compute-bound kernels
    memory: float  # of memory-bound kernels
    launch: float  # of launch-bound kernels
    launches: int  # number of kernels
    flops: float  # of all kernels
    bytes: float  # read and written by all kernels
    graphed: float = 0.0  # seconds as CUDA graphs, without launch times

    @property
    def seconds(self) -> float:
        """Seconds of the whole call."""
        return self.compute + self.memory + self.launch

    def share(self, bound: str) -> float:
        """Fraction of the time in kernels of that bound."""
        part: float = getattr(self, bound)
        return part / self.seconds if self.seconds else 0.0


def predict(
    kernels: Iterable[Kernel], device: DeviceSpec, precision: str = "float32"
) -> Prediction:
    """Roofline time of the kernels, in any order.

    With ``precision`` "tf32", float32 products run at the TF32 peak.

    Raises:
        ValueError: the device has no peak in the precision of a product.
    """
    listed = list(kernels)
    seconds, graphed = dict.fromkeys(BOUNDS, 0.0), 0.0
    for kernel in listed:
        rounded = precision == "tf32" and kernel.precision == "float32"
        dtype = "tf32" if rounded else kernel.precision
        compute = kernel.flops / device.peak_of(dtype) if kernel.flops else 0.0
        memory = kernel.bytes / device.bandwidth
        needs = {"compute": compute, "memory": memory, "launch": device.launch}
        bound = max(needs, key=lambda name: needs[name])
        seconds[bound] += needs[bound]
        graphed += max(compute, memory)
    return Prediction(
        **seconds,
        launches=len(listed),
        flops=sum(kernel.flops for kernel in listed),
        bytes=sum(kernel.bytes for kernel in listed),
        graphed=graphed,
    )
