"""The worker process: one revision's ``torch_impl``, and everything else from this checkout.

`benchmarks.perf.compare.worker_process` starts it and sends one request at a time. Nothing at the
top may import ``torch_impl``, so that the revision's is imported first.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.perf.clock import clocks

ROOT = Path(__file__).resolve().parents[3]
CLOCKS = {"cpu": time.process_time, "wall": time.perf_counter}


class ForeignCodeError(Exception):
    """A module was imported from the wrong place."""


class Worker:
    """The requests that the process responds to, a method each; ``tree`` has the ``torch_impl``.

    Raises:
        Exception: whatever importing that ``torch_impl`` raises.
    """

    def __init__(self, tree: Path, device: str, threads: int) -> None:
        sys.path.insert(0, str(tree))
        importlib.import_module("torch_impl")
        sys.path.remove(str(tree))
        # an editable installation would supply what the revision lacks
        sys.meta_path[:] = [
            f for f in sys.meta_path if "__editable__" not in getattr(f, "__module__", "")
        ]
        self.tree = tree
        import torch

        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False
        self.device = torch.device(device)
        self.work: Any = None

    def verify(self, name: str, implementation: str, examples: int) -> list[str]:
        """How the revision fails this checkout's oracle; empty if it passes."""
        from benchmarks.perf.compare import benchmarks, verification

        # the candidates' processes inherit this path: they see only torch_impl of the tree
        alone = self.tree / ".alone"
        alone.mkdir(exist_ok=True)
        if not (alone / "torch_impl").exists():
            (alone / "torch_impl").symlink_to(self.tree / "torch_impl")
        sys.path.insert(0, str(alone))
        os.environ["PYTHONSAFEPATH"] = "1"
        lines = verification.failures(
            benchmarks.BENCHMARKS[name], implementation, str(self.device), examples
        )
        self.check_origin()
        return lines

    def prepare(self, name: str, implementation: str, clock: str) -> float:
        """Set the benchmark up and warm it up; returns the seconds of a call."""
        from benchmarks.perf.compare import benchmarks

        self.work = None
        gc.collect()
        case = benchmarks.BENCHMARKS[name].case(implementation)
        self.work = case.work(implementation, self.device)
        self.check_origin()
        seconds, _, _ = self.turn(4, clock, 0.0)
        gc.collect()
        gc.freeze()  # objects so far are permanent: later collections are quick
        gc.disable()
        return min(seconds)

    def count(self) -> dict[str, int | None]:
        """Resource counts of a call."""
        from benchmarks.perf.compare import counts

        return counts.count(self.work, self.device)

    def turn(self, calls: int, clock: str, planted: float) -> tuple[list[float], float, float]:
        """The seconds of each call by ``clock``, and of all by the monotonic and the wall clock.

        ``planted`` is the fraction of its time by which each call is prolonged, as if it were
        slower.
        """
        gc.collect()
        now = CLOCKS[clock]
        wait = self._wait()
        wait()
        seconds = []
        began = clocks()
        for _ in range(calls):
            start = now()
            self.work.call()
            wait()
            end = now()
            until = end + planted * (end - start)
            while end < until:
                end = now()
            seconds.append(end - start)
        monotonic, wall = (now - then for now, then in zip(clocks(), began, strict=True))
        return seconds, monotonic, wall

    def _wait(self) -> Callable[[], None]:
        if self.device.type != "cuda":
            return lambda: None
        import torch

        if self.device.index is not None:
            torch.cuda.set_device(self.device)
        return torch.cuda.synchronize

    def check_origin(self) -> None:
        """Raise ForeignCodeError unless the harness is ours and ``torch_impl`` the tree's."""
        homes = {
            "torch_impl": self.tree,
            **dict.fromkeys(("benchmarks", "reference", "tests"), ROOT),
        }
        for name, module in list(sys.modules.items()):
            home = homes.get(name.partition(".")[0])
            file = getattr(module, "__file__", None)
            if home and (file is None or not Path(file).resolve().is_relative_to(home.resolve())):
                raise ForeignCodeError(f"{name} is from {file}, expected it from {home}")


def serve(connection: Connection, start: Callable[[], Any]) -> None:
    """Respond to requests (method, arguments) until the pipe is closed.

    A response is (True, the value) or (False, the exception's name and first line).
    """
    worker, response = None, (True, ("", ""))
    try:
        worker = start()
    except Exception as error:
        response = False, _said(error)
    try:
        connection.send(response)
        while worker is not None:
            method, arguments = connection.recv()
            try:
                connection.send((True, getattr(worker, method)(**arguments)))
            except Exception as error:
                connection.send((False, _said(error)))
    except (EOFError, BrokenPipeError):
        return


def _said(error: Exception) -> tuple[str, str]:
    return type(error).__name__, (str(error).splitlines() or [""])[0]


if __name__ == "__main__":
    descriptor, folder, device, threads = sys.argv[1:]
    serve(Connection(int(descriptor)), lambda: Worker(Path(folder), device, int(threads)))
