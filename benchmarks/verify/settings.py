"""Global settings that a candidate must leave alone, for it is not the only code of its process."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

SETTINGS = (
    "PyTorch's seed, default dtype and device, number of threads, precision of float32 products, "
    "gradient, inference, deterministic and anomaly modes; NumPy's treatment of errors, the "
    "flushing of subnormal numbers, environment variables that are set, the working directory"
)
"""In words."""


def probe() -> Callable[[], dict[str, Any]]:
    """A function that reads the settings; what is imported later is not among them.

    It is bound to today's functions: one that is patched later does not change what it reads.
    """
    least = sys.float_info.min
    functions: dict[str, Callable[[], Any]] = {
        "os.getcwd()": os.getcwd,
        "np.geterr()": np.geterr,
        "flushing of subnormal numbers": lambda: least / 2 == 0,
    }
    if "torch" in sys.modules:
        import torch

        names = (
            *("initial_seed", "get_default_dtype", "get_default_device", "get_num_threads"),
            *("is_grad_enabled", "is_inference_mode_enabled", "is_anomaly_enabled"),
            *("are_deterministic_algorithms_enabled", "get_float32_matmul_precision"),
        )
        functions |= {f"torch.{name}()": getattr(torch, name) for name in names}
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
