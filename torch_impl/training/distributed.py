"""Several processes that train one model, each on its share of every batch.

A step has two moments when they talk: before it each learns how many words all shares have, and
after it the gradients are summed, once, however many parts a share was computed in. Every process
then makes the same update of the same weights.

Not by ``DistributedDataParallel``, which takes the mean over processes, where a loss is a mean over
words, of which shares have different numbers; which wants ``forward`` called, where objectives call
a captioner's passes by name; which must be told the last of several backward passes; and for which
a process without an image, as an epoch's last batch may leave it, needs a special case. Its
gain, sums that travel while the backward pass still runs, is given up.
"""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from types import FrameType
from typing import NoReturn, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from torch_impl.common.weights import fingerprint

T = TypeVar("T")

_PATIENCE = timedelta(hours=12)
"""Longer than any validation, for which the others wait; who has died is noticed at once."""
_PRECEDENCE = timedelta(seconds=1)


class ProcessesError(RuntimeError):
    """The processes cannot go on together: one has ended, or is another's unequal."""


class Processes:
    """The processes of a job, of which this one is number ``rank`` of ``size``; by default alone.

    Whatever talks is called by all of them in the same order, and raises ``ProcessesError`` where
    one of them has ended.

    Args:
        rank: from 0, the number of this process.
        size: how many there are.
        device: where this one computes.
        store: what they found each other by.
    """

    def __init__(
        self, rank: int = 0, size: int = 1, device: str = "cpu", store: dist.Store | None = None
    ) -> None:
        """Talk to nobody yet."""
        self.rank = rank
        self.size = size
        self.device = device
        self._store = store

    @property
    def first(self) -> bool:
        """Whether this one validates, logs and saves, alone."""
        return self.rank == 0

    def share(self, items: Sequence[T]) -> Sequence[T]:
        """This process's run of ``items``: the shares in turn are all of them, nearly equal."""
        first, end = (i * len(items) // self.size for i in (self.rank, self.rank + 1))
        return items[first:end]

    def gather(self, *numbers: float) -> list[tuple[float, ...]]:
        """Every process's numbers, in the order of the processes; integers up to 2^53 are exact."""
        if self.size == 1:
            return [numbers]
        own = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        of_all = [torch.empty_like(own) for _ in range(self.size)]
        with self._together():
            dist.all_gather(of_all, own)
        return [tuple(numbers.tolist()) for numbers in of_all]

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Make every parameter's gradient the sum over the processes, the same bits in each.

        A parameter has none afterwards where no process has one.
        """
        if self.size == 1:
            return
        parameters = list(parameters)
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        having = gradients[0].new_tensor([float(p.grad is not None) for p in parameters])
        flat = torch.cat([having, *(gradient.flatten() for gradient in gradients)])
        with self._together():
            dist.all_reduce(flat)
        having, *sums = flat.split([len(parameters), *(p.numel() for p in parameters)])
        for parameter, had, total in zip(parameters, having.tolist(), sums, strict=True):
            parameter.grad = total.view_as(parameter).to(parameter.dtype) if had else None

    def broadcast(self, value: T) -> T:
        """The first process's ``value``, in each; tensors in it are of the CPU."""
        if self.size == 1:
            return value
        box = [value]
        with self._together():
            dist.broadcast_object_list(box, src=0, device=torch.device(self.device))
        return box[0]

    def check_same(self, weights: Mapping[str, Tensor]) -> None:
        """Hold every process's ``weights`` to the first's.

        Raises:
            ProcessesError: which one has others, by a bit or more.
        """
        if self.size == 1:
            return
        # 48 bits of the hash: as many as a float64 holds, and enough to tell a mistake
        (expected,), *others = self.gather(int(fingerprint(weights)[:12], 16))
        for rank, (found,) in enumerate(others, start=1):
            if found != expected:
                raise ProcessesError(
                    f"process {rank} of {self.size} has other weights than process 0, expected "
                    "the same options, data and versions everywhere"
                )

    @contextmanager
    def leading(self) -> Iterator[None]:
        """The first process does what is within before the others do."""
        if not self.first:
            self.gather(0)
        yield
        if self.first:
            self.gather(0)

    def speaks(self) -> bool:
        """Whether this one is to say why the job ends: one of them is, who can.

        It is the first to ask, and of several within a second process 0. From then on a request to
        end is not heeded: the end is near.
        """
        if self._store is None:
            return True
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if not self.first:
            with suppress(RuntimeError):  # nobody spoke in time
                self._store.wait(["said"], _PRECEDENCE)
        with suppress(RuntimeError):
            return self._store.add("said", 1) == 1
        return True

    @contextmanager
    def _together(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            raise ProcessesError(
                f"process {self.rank} of {self.size} has lost another ({_reason(error)})"
            ) from error


def _reason(error: Exception) -> str:
    """The first sentence of an error, without the place in a source that it begins with."""
    line = (str(error).splitlines() or ["no reason given"])[0]
    return re.sub(r"^\[[^\]]*\]\s*", "", line).split(". ")[0]


@contextmanager
def joined(store: dist.Store, rank: int, size: int, device: str = "cpu") -> Iterator[Processes]:
    """Process ``rank`` of ``size`` that meet at ``store``; by NCCL on GPUs, otherwise by Gloo.

    Raises:
        ProcessesError: they cannot meet.
    """
    processes = Processes(rank, size, device, store)
    backend = "nccl" if torch.device(device).type == "cuda" else "gloo"
    with processes._together():
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=_PATIENCE)
    yield processes
    # not when it fails: the others do not answer any more
    dist.destroy_process_group()


@contextmanager
def started(device: str = "cpu") -> Iterator[Processes]:
    """The processes that ``torchrun`` started; without it this one alone.

    Args:
        device: where to compute; "cuda" is the GPU of the process's number on its machine.

    Raises:
        ProcessesError: they cannot meet; within, this process is told to end (SIGTERM), as
            ``torchrun`` tells all when one has ended.
    """
    if "WORLD_SIZE" not in os.environ:
        yield Processes(device=device)
        return
    try:
        if device == "cuda":
            device = f"cuda:{int(os.environ['LOCAL_RANK'])}"
            torch.cuda.set_device(device)
        store, rank, size = next(dist.rendezvous("env://"))
    except (ValueError, KeyError, RuntimeError) as error:
        raise ProcessesError(
            f"no job of several processes can be joined ({_reason(error)})"
        ) from error

    def ended(number: int, frame: FrameType | None) -> NoReturn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise ProcessesError(f"process {rank} of {size} was told to end, as another has ended")

    before = signal.signal(signal.SIGTERM, ended)
    with joined(store, rank, size, device) as processes:
        yield processes
    signal.signal(signal.SIGTERM, before)
