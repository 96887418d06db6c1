"""Child processes that end with this one, on Linux even if it is killed.

``run`` and ``Popen`` are those of `subprocess`. Elsewhere a child goes on until it uses a pipe to
this process.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from subprocess import PIPE
from typing import Any

__all__ = ["PIPE", "Popen", "end_with_parent", "run"]

PARENT_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of Linux's prctl."""
# found here: after a fork only calls are safe
_prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


def end_with_parent(parent: int) -> None:
    """In a child: be killed when the thread of process ``parent`` that started it exits."""
    if _prctl is None:
        return
    _prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:  # it exited before the call
        os._exit(1)


def _with_this() -> Callable[[], None] | None:
    return partial(end_with_parent, os.getpid()) if _prctl else None


def run(command: Any, **options: Any) -> subprocess.CompletedProcess[Any]:
    """`subprocess.run` of a process that ends with this one."""
    return subprocess.run(command, preexec_fn=_with_this(), **options)


def Popen(command: Any, **options: Any) -> subprocess.Popen[Any]:
    """`subprocess.Popen` of a process that ends with this one, if the main thread starts it.

    Another thread may exit first, and the process with it.
    """
    lasting = threading.current_thread() is threading.main_thread()
    return subprocess.Popen(command, preexec_fn=_with_this() if lasting else None, **options)
