"""A process group that trains one model, each rank on its shard of every batch.

Before a step the ranks gather the whole batch's number of words; after it they sum the loss and,
once for all micro-batches, the gradients. Every rank then makes the same update of the same
weights. Counts are gathered on the host: no rank waits for its GPU.

``DistributedDataParallel`` does not fit. It averages over ranks, but the loss is a mean over words,
of which shards have different numbers. It wraps ``forward``, but objectives call ``encode`` and
``states``. It must be told which of several backward passes is the last, and a rank without images,
as in an epoch's last batch, needs a special case. The price: all-reduce and backward pass do not
overlap.
"""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import reduce
from types import FrameType
from typing import NoReturn, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from torch_impl.common.weights import fingerprint

T = TypeVar("T")

_TIMEOUT = timedelta(hours=12)
"""Longer than any validation, for which the other ranks wait; a dead rank is noticed at once."""
_MAIN_RANK_REPORTS_WITHIN = timedelta(seconds=1)


class ProcessGroupError(RuntimeError):
    """The ranks cannot continue together: one has ended, or their weights differ."""


class ProcessGroup:
    """This process's ``rank`` in a group of ``world_size``; by default a group of one.

    Creating it does not initialise ``torch.distributed``: `init_process_group` does. Every rank
    calls the collectives in the same order; they raise ``ProcessGroupError`` if a rank has ended.

    Args:
        device: where this rank computes.
        store: the ranks' rendezvous store; None for a group of one.
    """

    def __init__(
        self,
        rank: int = 0,
        world_size: int = 1,
        device: str = "cpu",
        store: dist.Store | None = None,
    ) -> None:
        self.rank = rank
        self.world_size = world_size
        self.device = device
        self._store = store

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, the only one to validate, log and save."""
        return self.rank == 0

    def shard(self, items: Sequence[T]) -> Sequence[T]:
        """This rank's contiguous shard of ``items``; shards differ in size by at most one."""
        start, end = (i * len(items) // self.world_size for i in (self.rank, self.rank + 1))
        return items[start:end]

    def all_gather(self, *numbers: float) -> list[tuple[float, ...]]:
        """The ``numbers`` of every rank, by rank; integers up to 2^53 are exact."""
        if self.world_size == 1:
            return [numbers]
        gathered = self._gather(torch.tensor(numbers, dtype=torch.float64))
        return [tuple(row.tolist()) for row in gathered]

    def all_reduce(self, own: Tensor) -> Tensor:
        """The sum of all ranks' ``own``, added in rank order on their device: bitwise the same."""
        return own if self.world_size == 1 else reduce(torch.add, self._gather(own))

    def _gather(self, own: Tensor) -> list[Tensor]:
        gathered = [torch.empty_like(own) for _ in range(self.world_size)]
        with self._collective():
            dist.all_gather(gathered, own)
        return gathered

    def all_reduce_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace every gradient by its sum over the ranks, bitwise the same on each.

        A gradient is None afterwards where it was None on every rank.
        """
        if self.world_size == 1:
            return
        parameters = list(parameters)
        present = self.all_gather(*(p.grad is not None for p in parameters))
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        with self._collective():
            dist.all_reduce(flat)
        sums = flat.split([p.numel() for p in parameters])
        for parameter, ranks, total in zip(
            parameters, zip(*present, strict=True), sums, strict=True
        ):
            parameter.grad = total.view_as(parameter).to(parameter.dtype) if any(ranks) else None

    def broadcast(self, value: T) -> T:
        """Rank 0's ``value``, on every rank; tensors in it must be on the CPU."""
        if self.world_size == 1:
            return value
        box = [value]
        with self._collective():
            dist.broadcast_object_list(box, src=0, device=torch.device(self.device))
        return box[0]

    def check_same_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Compare every rank's ``weights`` with rank 0's, bit by bit.

        Raises:
            ProcessGroupError: names the first rank that differs.
        """
        if self.world_size == 1:
            return
        # 48 bits of the hash: exact in float64, and enough to tell a mistake
        (expected,), *others = self.all_gather(int(fingerprint(weights)[:12], 16))
        for rank, (found,) in enumerate(others, start=1):
            if found != expected:
                raise ProcessGroupError(
                    f"rank {rank} of {self.world_size} has other weights than rank 0, expected "
                    "the same options, data and versions everywhere"
                )

    @contextmanager
    def main_first(self) -> Iterator[None]:
        """Rank 0 runs the body before the other ranks do."""
        if not self.is_main:
            self.all_gather(0)
        yield
        if self.is_main:
            self.all_gather(0)

    def elect_reporter(self) -> bool:
        """Whether this rank reports why the job ends; only one rank does.

        It is the first to ask, or rank 0 if that asks within a second. From then on SIGTERM is
        ignored, as the process is about to end.
        """
        if self._store is None:
            return True
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if not self.is_main:
            with suppress(RuntimeError):  # timed out: no other rank reports
                self._store.wait(["reported"], _MAIN_RANK_REPORTS_WITHIN)
        with suppress(RuntimeError):
            return self._store.add("reported", 1) == 1
        return True

    @contextmanager
    def _collective(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            raise ProcessGroupError(
                f"rank {self.rank} of {self.world_size} has lost another rank ({_reason(error)})"
            ) from error


def _reason(error: Exception) -> str:
    """The first sentence of an error, without its source location."""
    line = (str(error).splitlines() or ["no reason given"])[0]
    return re.sub(r"^\[[^\]]*\]\s*", "", line).split(". ")[0]


@contextmanager
def join_process_group(
    store: dist.Store, rank: int, world_size: int, device: str = "cpu"
) -> Iterator[ProcessGroup]:
    """Join the process group of ``store``: NCCL on GPUs, Gloo on the host.

    Raises:
        ProcessGroupError: the group cannot be joined.
    """
    group = ProcessGroup(rank, world_size, device, store)
    backend = "cpu:gloo,cuda:nccl" if torch.device(device).type == "cuda" else "gloo"
    with group._collective():
        dist.init_process_group(
            backend, store=store, rank=rank, world_size=world_size, timeout=_TIMEOUT
        )
    yield group
    # not after an error: the other ranks no longer answer
    dist.destroy_process_group()


@contextmanager
def init_process_group(device: str = "cpu") -> Iterator[ProcessGroup]:
    """The process group that ``torchrun`` started; without ``torchrun`` a group of one.

    Args:
        device: where to compute; "cuda" is the GPU of the local rank.

    Raises:
        ProcessGroupError: the group cannot be joined; in the body, this process received SIGTERM,
            which ``torchrun`` sends to all ranks when one has ended.
    """
    if "WORLD_SIZE" not in os.environ:
        yield ProcessGroup(device=device)
        return
    try:
        if device == "cuda":
            device = f"cuda:{int(os.environ['LOCAL_RANK'])}"
            torch.cuda.set_device(device)
        store, rank, world_size = next(dist.rendezvous("env://"))
    except (ValueError, KeyError, RuntimeError) as error:
        raise ProcessGroupError(f"cannot join the process group ({_reason(error)})") from error

    def on_sigterm(number: int, frame: FrameType | None) -> NoReturn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise ProcessGroupError(
            f"rank {rank} of {world_size} received SIGTERM, as another rank has ended"
        )

    before = signal.signal(signal.SIGTERM, on_sigterm)
    with join_process_group(store, rank, world_size, device) as group:
        yield group
    signal.signal(signal.SIGTERM, before)
