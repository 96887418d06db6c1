"""The roofline: each kernel takes as long as its slowest need, and a call as long as its kernels.

time = sum over kernels of max(FLOPs / peak, bytes / bandwidth, launch). It is what the device could
do at best with those kernels, one after another: no product reaches its peak, and a GPU that waits
for its host shows as launches.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.perf.kernels import Kernel
from benchmarks.perf.roofline.devices import Device

BOUNDS = ("compute", "memory", "launch")


@dataclass(frozen=True)
class Prediction:
    """The seconds of a call, by what bounds its kernels."""

    compute: float  # of the kernels that multiply as fast as they can
    memory: float  # of those that read and write as fast as they can
    launch: float  # of those too small for either
    launches: int  # how many kernels there are
    flops: float  # of all of them
    bytes: float  # read and written by all of them
    graphed: float = 0.0  # seconds as CUDA graphs, in which no launch is waited for

    @property
    def seconds(self) -> float:
        """Of the whole call."""
        return self.compute + self.memory + self.launch

    def share(self, bound: str) -> float:
        """The part of the time that kernels of that bound take."""
        part: float = getattr(self, bound)
        return part / self.seconds if self.seconds else 0.0


def predict(kernels: Iterable[Kernel], device: Device, precision: str = "float32") -> Prediction:
    """How long the kernels, in any order, take on the device at best.

    In ``precision`` "tf32" products of float32 may round their inputs.

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
