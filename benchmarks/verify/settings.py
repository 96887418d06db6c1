"""Global settings that a candidate must not change, since other code depends on them."""

from __future__ import annotations

import os
import pickle
import random
import sys
import warnings
from collections import deque
from collections.abc import Callable
from functools import partial
from gc import isenabled
from os import getcwd
from sys import getrecursionlimit as get_limit
from typing import Any

from numpy.random import get_state, random_sample

from benchmarks.verify.originals import np, torch_originals

SETTINGS = (
    "the seeds of PyTorch, NumPy and Python (two calls that leave one state), PyTorch's default "
    "dtype and device, number of threads, precision of float32 products, gradient, inference, "
    "autocast, deterministic and anomaly modes; NumPy's treatment of errors, the flushing of "
    "subnormal numbers and the direction of rounding, filters of all of Python's warnings of a "
    "kind, the recursion limit, garbage collection, environment variables that are set, the "
    "working directory"
)
"""A description for users."""


LEAST, BELOW_EPSILON = sys.float_info.min, sys.float_info.epsilon / 8

GENERATORS: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
    "numpy": (random_sample, get_state),
    "random": (random.random, random.getstate),
}
"""Functions that draw a number, and read the state."""


def seedings(draw: Callable[[], object], state: Callable[[], object]) -> Callable[[], int]:
    """Detect seeding: returns a function to call before and after each call of a candidate.

    It counts how often two consecutive calls left the same state of the generator. Since a number
    is drawn in between, such calls have seeded it; calls that draw numbers, or restore the state,
    leave different states.
    """
    states, found = deque[bytes](maxlen=4), 0

    def read() -> int:
        nonlocal found
        states.append(pickle.dumps(state()))
        draw()
        if len(states) == 4:
            before_first, after_first, before, after = states
            found += after == after_first and before != before_first
        return found

    return read


def filters() -> list[Any]:
    """Python's filters for all warnings of a builtin category; libraries add others."""
    return [
        (action, kind)
        for action, message, kind, module, _ in warnings.filters
        if message is module is None and kind.__module__ == "builtins"
    ]


def settings_reader() -> Callable[[], dict[str, Any]]:
    """A function that reads the settings, without those of modules imported later.

    It calls the original functions, so that patching them has no effect.
    """
    limits = get_limit(), 2000  # PyTorch's compiler sets 2000
    functions: dict[str, Callable[[], Any]] = {
        "os.getcwd()": getcwd,
        "np.geterr()": np.geterr,
        "np.random.seed()": seedings(*GENERATORS["numpy"]),
        "random.seed()": seedings(*GENERATORS["random"]),
        "warnings.filters": filters,
        "gc.isenabled()": isenabled,
        "sys.getrecursionlimit()": lambda: get_limit() in limits,
        "flushing of subnormal numbers": lambda: LEAST / 2 == 0,
        "direction of rounding": lambda: (1 + BELOW_EPSILON, 1 - BELOW_EPSILON),
    }
    if "torch" in sys.modules:
        torch = torch_originals()
        names = (
            *("initial_seed", "get_default_dtype", "get_default_device", "get_num_threads"),
            *("is_grad_enabled", "is_inference_mode_enabled", "is_anomaly_enabled"),
            *("are_deterministic_algorithms_enabled", "get_float32_matmul_precision"),
        )
        functions["torch.is_autocast_enabled()"] = partial(torch.is_autocast_enabled, "cpu")
        functions |= {f"torch.{name}()": getattr(torch, name) for name in names}
        draw, state = partial(torch.rand, 1, dtype=torch.float32), torch.get_rng_state
        to_numpy = torch.methods.numpy
        functions["torch.set_rng_state()"] = seedings(draw, lambda: to_numpy(state()).tobytes())
    if "jax" in sys.modules:
        import jax

        config: Any = jax.config
        functions["jax_enable_x64"] = lambda: config.jax_enable_x64
    variables = {f"os.environ[{name!r}]": name for name in os.environ}  # libraries add others
    get = os.environ.get

    def read() -> dict[str, Any]:
        found = {name: function() for name, function in functions.items()}
        return found | {said: get(name) for said, name in variables.items()}

    return read
