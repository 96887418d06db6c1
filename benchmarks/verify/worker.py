"""The worker process: runs a candidate, and answers requests.

Run as ``python -m benchmarks.verify.worker FD``. The first process is the fork server: it imports
PyTorch, and forks a worker with its ``supervisor`` for each connection that it receives. A worker
never has the oracle or an expected value; it receives arguments and returns results.
"""

from __future__ import annotations

import ast
import contextlib
import ctypes
import faulthandler
import gc
import importlib.util
import inspect
import os
import pickle
import random
import resource
import select
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from functools import partial
from os import getpid
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.errors import InputError
from benchmarks.verify import shared, wire
from benchmarks.verify.candidate import (
    LARGEST_FILE,
    Candidate,
    CandidateError,
    load,
)
from benchmarks.verify.conversion import FRAMEWORKS, reader
from benchmarks.verify.frameworks import NotAnArrayError
from benchmarks.verify.loading import padding_argument
from benchmarks.verify.originals import own_builtins
from benchmarks.verify.settings import settings_originals
from benchmarks.verify.supervisor import end_children, end_orphans, fork

own_builtins(globals())

PERTURB, PATTERNS = -6, (0x80, 0x40)
"""glibc's option, and what new numbers become by it: 1e306, or -0.12 (in float32 3e38, or -1.5)."""

_libc = ctypes.CDLL(None)

STARTING = "fork", "system", "popen", "Popen", "run", "check_output", "Process", "Pool"
"""Names of functions and classes that start processes."""

LARGEST_OUTPUT, LEFT_OUTPUT = 2**24, 2**12
"""Size of a candidate's output after which, between two calls, all but its end is deleted, and of
that end, in bytes.
"""


def main() -> None:
    """Fork a worker for each received connection."""
    control = socket.socket(fileno=int(sys.argv[1]))
    # workers that are forked from a process with PyTorch start at once
    gc.disable()
    if importlib.util.find_spec("torch") is not None:
        reader("torch")
    settings_originals()
    gc.freeze()
    gc.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # handled by the parent
    end_orphans()
    while True:
        try:
            data, descriptors, _, _ = socket.recv_fds(control, 1, 2)
        except ConnectionResetError:  # the parent has exited before it read an answer
            break
        if not data:
            break
        connection = socket.socket(fileno=descriptors[0])
        enter = partial(_detach, control, descriptors[1])
        pid = fork(connection, enter, partial(_worker, connection))
        connection.close()
        os.close(descriptors[1])
        with contextlib.suppress(BrokenPipeError):  # the parent has exited
            control.sendall(pid.to_bytes(8, "big"))
    end_children()


def _detach(control: socket.socket, output: int) -> None:
    """Close the test process's descriptors: a candidate can open those of its supervisor."""
    control.close()
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    os.close(output)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)


def _worker(connection: socket.socket, await_supervisor: Callable[[], object]) -> None:
    home, (of_forks, returned) = getpid(), os.pipe()

    def end_fork() -> None:
        if getpid() != home:  # a fork by the candidate, whose caller would go on twice
            os.write(returned, b"!")
            os._exit(0)

    def send(result: Any) -> None:
        end_fork()
        try:
            data = wire.dump({"result": result})
        except TypeError as error:
            raise NotAnArrayError(str(error)) from error
        wire.send(connection, number, data)

    faulthandler.enable()  # a crash prints where it happened
    _reseed()
    candidate: Candidate | None = None
    while True:
        try:
            number, data, descriptor = wire.receive_request(connection)
        except EOFError:
            return
        _fill_memory(PATTERNS[number % len(PATTERNS)])
        try:
            method, arguments = shared.load(data, descriptor)
            if candidate is None:
                candidate, value = _loaded(**arguments)
                candidate.send = send
            elif method == "apply":
                value = candidate.apply(*arguments)
            else:
                getattr(candidate, method)(*arguments)
                value = None  # it has been sent
            response: Any = {"value": value}
        except CandidateError as error:
            response = {"failed": str(error), "kind": error.kind}
        except InputError as error:
            response = {"input": str(error)}
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            if (size := os.fstat(1).st_size) > LARGEST_OUTPUT:
                end = os.pread(1, LEFT_OUTPUT, size - LEFT_OUTPUT)
                os.ftruncate(1, 0)
                os.lseek(1, 0, os.SEEK_SET)
                os.write(1, end)
        end_fork()
        if select.select([of_forks], [], [], 0)[0]:
            os.read(of_forks, 1)
            response = {"failed": "returned in a process that it forked, too", "kind": "fork"}
        await_supervisor()  # exits if the candidate has killed the supervisor
        try:
            answer = wire.dump(response)
        except TypeError as error:
            said = {"failed": f"returned {error}, expected an array", "kind": "not an array"}
            answer = wire.dump(said)
        wire.send(connection, number, answer)


def _fill_memory(pattern: int) -> None:
    """Have glibc fill new memory with the complement of a byte: in turn with others, so that what
    is not initialised is seen where it is compared with a result.
    """
    with contextlib.suppress(AttributeError):  # another library
        _libc.mallopt(PERTURB, pattern)


def _reseed() -> None:
    """Give each worker other random numbers: what depends on them is not deterministic."""
    random.seed()
    np.random.seed()  # noqa: NPY002
    if "torch" in sys.modules:
        sys.modules["torch"].seed()


def _loaded(
    source: str | bytes,
    name: str,
    arguments: list[str],
    framework: str,
    device: str,
    path: list[str],
    folder: str,
    memory: int | None,
    asked: bool,
) -> tuple[Candidate, dict[str, Any]]:
    """Load the candidate; returns it, and if ``asked`` what its module has, for ``_About``."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    sys.path[:] = path
    os.chdir(folder)  # the fork server may have been started in another folder
    try:
        if isinstance(source, str):
            candidate = load(source, framework, device, folder, copies=False)
        else:
            function = _unpickled(source)
            candidate = Candidate(function, framework, device, folder, copies=False)
    except ImportError as error:  # the framework is missing
        raise InputError(f"framework {framework}: {error}") from error
    try:
        padding = padding_argument(candidate.function, arguments)
    except TypeError as error:
        raise InputError(f"candidate {name} {error}") from None
    if not asked:
        return candidate, {}
    of = getattr(candidate.function, "__module__", "")
    module = sys.modules.get(of) if of != "__main__" else None  # which is this one here
    nodes = _nodes(module)
    mentions = sorted(_imported(module, nodes))
    return candidate, {"padding": padding, "mentions": mentions, "apart": _is_apart(nodes)}


def _nodes(module: ModuleType | None) -> list[ast.AST]:
    """The syntax of a module; nothing if it has no file, or none of Python."""
    with contextlib.suppress(Exception):
        return [*ast.walk(ast.parse(inspect.getsource(module)))]  # type: ignore[arg-type]
    return []


def _is_apart(nodes: Sequence[ast.AST]) -> bool:
    """Whether there is a set, whose order may differ between processes, or something that starts
    processes, which have a worker's limits in a worker alone.
    """
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    names |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    sets = any(isinstance(node, (ast.Set, ast.SetComp)) for node in nodes)
    return sets or not names.isdisjoint(("set", "frozenset", "hash", *STARTING))


def _imported(module: ModuleType | None, nodes: Sequence[ast.AST]) -> set[str]:
    """The frameworks that a module imports, or names of."""
    names = [x.__name__ for x in vars(module or sys).values() if isinstance(x, ModuleType)]
    for node in nodes:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.append(node.module or "")
    return {name.partition(".")[0] for name in names} & FRAMEWORKS.keys()


def _unpickled(source: bytes) -> Callable[..., Any]:
    try:
        function: Callable[..., Any] = pickle.loads(source)
    except Exception as error:
        raise InputError(
            f"candidate: it cannot be sent to another process: {type(error).__name__}: {error}; "
            "name it as package.module:callable or path/file.py:callable"
        ) from error
    return function


if __name__ == "__main__":
    main()
    os._exit(0)  # what Python frees at its end takes as long as a test
