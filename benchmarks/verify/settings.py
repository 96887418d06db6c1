"""Global settings that a candidate must not change, since other code depends on them."""

from __future__ import annotations

import builtins
import logging
import math
import os
import random
import sys
import time
import timeit
import warnings
from _random import Random
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, partial
from gc import isenabled
from hashlib import blake2b
from locale import LC_ALL, setlocale
from operator import attrgetter, is_
from os import fstat, getcwd
from signal import SIGINT, getsignal
from sys import getprofile, gettrace
from sys import getrecursionlimit as get_limit
from types import FunctionType, NoneType
from typing import Any

import numpy
import numpy.testing
from numpy.random import get_state, random_sample

from benchmarks.verify.originals import is_one, module_of, np, own_builtins, torch_originals

own_builtins(globals())

SETTINGS = (
    "the seeds of PyTorch, NumPy and Python (two calls that leave one state), PyTorch's default "
    "dtype and device, hooks of saved tensors, number of threads, precision of float32 products, "
    "gradient, inference, autocast, deterministic and anomaly modes, and switches of its "
    "backends; NumPy's treatment of errors and way to print, the flushing of subnormal numbers "
    "and the direction of rounding, filters of all of Python's warnings of a kind, the level of "
    "logging, standard output, what Ctrl-C does, the locale, the recursion limit (but for 2000, "
    "which PyTorch's compiler sets), garbage collection, functions that trace or profile calls, "
    "environment variables that are set, the working directory, and which functions Python, its "
    "modules math, random, time and timeit, numpy, its linalg, random and testing, torch (but for "
    "manual_seed, which its compiler replaces), its Tensor, autograd, linalg, nn.functional, "
    "random and testing have"
)
"""A description for users."""


SWITCHES = (
    *("_get_mkldnn_enabled", "_get_cudnn_enabled", "_get_cudnn_benchmark"),
    *("_get_cudnn_deterministic", "_get_cudnn_allow_tf32", "_get_cublas_allow_tf32"),
    *("_get_flash_sdp_enabled", "_get_mem_efficient_sdp_enabled", "_get_math_sdp_enabled"),
    *("_is_multithreading_enabled", "is_autocast_cache_enabled", "_get_warnAlways"),
)
"""Functions that read the switches of PyTorch's backends."""

MODULES = (
    *(math, random, time, timeit, numpy, numpy.linalg, numpy.random, numpy.testing),
    sys.modules[numpy.testing.assert_allclose.__globals__["__name__"]],
)
"""Modules whose functions a call must not replace; the last holds numpy.testing's comparisons."""

LEAST, BELOW_EPSILON = sys.float_info.min, sys.float_info.epsilon / 8

PLAIN = bool, int, float, str, bytes, NoneType
"""Types whose values are compared; other settings are one object, or have changed."""


_numpy_state = partial(get_state, legacy=False)
_python_state = partial(Random.getstate, vars(random)["_inst"])


def _state_of_numpy() -> bytes:
    parts: list[Any] = [*_numpy_state()["state"].values()]
    return b"".join(x.tobytes() if type(x) is np.ndarray else repr(x).encode() for x in parts)


Generator = tuple[Callable[[], object], Callable[[], bytes]]
"""Functions that draw a number, and give the state."""

GENERATORS: dict[str, Generator] = {
    "np.random.seed()": (random_sample, _state_of_numpy),
    "random.seed()": (random.random, lambda: repr(_python_state()).encode()),
}


class Seedings:
    """Detects seeding; to call before and after each call of a candidate.

    It counts how often a call left the state of the generator that one with another state before it
    has left. Since a number is drawn each time, such calls have seeded it; calls that draw numbers,
    or restore the state, leave different states.

    Attributes:
        before: hashes of the states before, by that of the state after.
    """

    def __init__(self, draw: Callable[[], object], state: Callable[[], bytes]) -> None:
        self._draw, self._state = draw, state
        self.before: dict[str, str] = {}
        self._last, self._found = "", 0

    def __call__(self) -> int:
        now = blake2b(self._state(), digest_size=16).hexdigest()
        self._draw()
        self._found += self.before.setdefault(now, self._last) != self._last
        self._last = now
        return self._found


def seeded(one: Mapping[str, Mapping[str, str]], other: Mapping[str, Mapping[str, str]]) -> str:
    """The generators that calls in two processes have seeded, of their ``states_before``."""
    return ", ".join(
        name
        for name in one.keys() & other.keys()
        if any(other[name].get(after, last) != last for after, last in one[name].items())
    )


def states_before(candidate: Any) -> dict[str, dict[str, str]]:
    """``Seedings.before`` of each generator, in a candidate's process."""
    return {name: generator.before for name, generator in candidate.generators.items()}


def filters() -> list[Any]:
    """Python's filters for all warnings of a builtin category; libraries add others."""
    return [
        (action, kind)
        for action, message, kind, module, _ in warnings.filters
        if message is module is None and module_of(kind) == "builtins"
    ]


def _output() -> tuple[Any, ...]:
    """Standard output: Python's, whether it is closed, and the file of its descriptor."""
    with suppress(OSError):
        file = fstat(1)
        return sys.stdout, getattr(sys.stdout, "closed", None), file.st_dev, file.st_ino
    return (sys.stdout,)


code_of, defaults_of = (vars(FunctionType)[name].__get__ for name in ("__code__", "__defaults__"))


def _replaced(of: Any) -> Callable[[], list[str]]:
    """A function that lists the public functions of a module or type that others have replaced, but
    for ``torch.manual_seed``, which PyTorch's compiler replaces when it is imported; or says that
    some have the code, or defaults, of others.
    """
    inherited = {*dir(of)} - vars(of).keys() if isinstance(of, type) else set[str]()
    known = dict(vars(of))
    written = [x for x in known.values() if type(x) is FunctionType]
    codes, defaults = [*map(code_of, written)], [*map(defaults_of, written)]

    def read() -> list[str]:
        nonlocal known
        now = vars(of)
        is_code = all(map(is_, codes, map(code_of, written)))
        if not (is_code and all(map(is_, defaults, map(defaults_of, written)))):
            return ["another's code"]
        if len(now) == len(known) and all(map(is_, known.values(), now.values())):
            return []
        names = [name for name, value in known.items() if now.get(name) is not value]
        found = [x for x in names if callable(known[x]) and (x[0] != "_" or x[:2] == "__")]
        found = [x for x in found if x != "manual_seed"]
        if not (found := [*found, *(inherited & now.keys())]):
            known = dict(now)  # modules imported since
        return sorted(found)

    return read


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """The names of the settings that have changed."""
    return ", ".join(name for name in after if not _is_same(after[name], before[name]))


def _is_same(one: Any, other: Any) -> bool:
    """Whether two values are one object, or plain and equal: others may be equal to all."""
    kind = type(one)
    if one is other or kind is not type(other):
        return one is other
    if kind is dict:
        one, other = [*one.items()], [*other.items()]
    if kind is dict or kind is list or kind is tuple:
        return len(one) == len(other) and all(map(_is_same, one, other))
    return is_one(kind, PLAIN) and bool(one == other)


def settings_originals() -> tuple[dict[str, Callable[[], Any]], dict[str, Generator]]:
    """Functions that read the settings, and those of generators, when first called: before a
    candidate is imported, which can replace them.
    """
    return _originals("torch" in sys.modules)


@cache
def _originals(of_torch: bool) -> tuple[dict[str, Callable[[], Any]], dict[str, Generator]]:
    generators = {**GENERATORS}
    functions: dict[str, Callable[[], Any]] = {
        "os.getcwd()": getcwd,
        "np.geterr()": np.geterr,
        "np.geterrcall()": np.geterrcall,
        "np.get_printoptions()": np.get_printoptions,
        "warnings.filters": filters,
        "the level of logging": lambda: (logging.root.level, logging.root.manager.disable),
        "standard output": _output,
        "signal.getsignal(SIGINT)": partial(getsignal, SIGINT),
        "locale.setlocale()": partial(setlocale, LC_ALL),
        "gc.isenabled()": isenabled,
        "sys.gettrace() or sys.getprofile()": lambda: (gettrace(), getprofile()),
        "flushing of subnormal numbers": lambda: LEAST / 2 == 0,
        "direction of rounding": lambda: (1 + BELOW_EPSILON, 1 - BELOW_EPSILON),
        "a function of Python": _replaced(builtins),
        **{f"a function of {one.__name__}": _replaced(one) for one in MODULES},
        "a function of timeit.Timer": _replaced(timeit.Timer),
    }
    if of_torch:
        torch = torch_originals()
        names = (
            *("initial_seed", "get_default_dtype", "get_num_threads", "is_grad_enabled"),
            *("is_inference_mode_enabled", "is_anomaly_enabled"),
            *("are_deterministic_algorithms_enabled", "get_float32_matmul_precision"),
        )
        functions["torch.get_default_device()"] = lambda: str(torch.get_default_device())
        functions["torch.is_autocast_enabled()"] = partial(torch.is_autocast_enabled, "cpu")
        functions |= {f"torch.{name}()": getattr(torch, name) for name in names}
        draw, state = partial(torch.rand, 1, dtype=torch.float32), torch.default_generator.get_state
        to_numpy = torch.methods.numpy
        generators["torch.manual_seed()"] = draw, lambda: to_numpy(state()).tobytes()
        top = torch._C._autograd._top_saved_tensors_default_hooks
        functions["torch.autograd.graph.saved_tensors_hooks()"] = partial(top, False)
        switches = filter(partial(hasattr, torch._C), SWITCHES)
        functions |= {f"torch._C.{name}()": getattr(torch._C, name) for name in switches}
        einsum = torch.backends.opt_einsum
        functions["torch.backends.opt_einsum"] = lambda: (einsum.enabled, einsum.strategy)
        functions["a function of torch"] = _replaced(sys.modules["torch"])
        for name in ("Tensor", "autograd", "linalg", "nn.functional", "random", "testing"):
            functions[f"a function of torch.{name}"] = _replaced(attrgetter(name)(torch))
    return functions, generators


def settings_reader() -> tuple[Callable[..., dict[str, Any]], dict[str, Seedings]]:
    """A function that reads the settings, without those of modules imported later; and its
    generators, which it leaves out if told so, since reading them draws a number.

    It calls ``settings_originals``, so that replacing these functions has no effect.
    """
    originals, of_generators = settings_originals()
    generators = {name: Seedings(*of) for name, of in of_generators.items()}
    limits = get_limit(), 2000  # PyTorch's compiler sets 2000
    functions = {**originals, "sys.getrecursionlimit()": lambda: get_limit() in limits}
    if "jax" in sys.modules:
        import jax

        config: Any = jax.config
        functions["jax_enable_x64"] = lambda: config.jax_enable_x64
    functions |= generators
    # libraries add others
    variables = {f"os.environ[{name!r}]": os.fsencode(name) for name in os.environ}
    get = vars(os.environ)["_data"].get

    def read(of_generators: bool = True) -> dict[str, Any]:
        chosen = functions if of_generators else functions.keys() - generators.keys()
        found = {name: functions[name]() for name in chosen}
        return found | {said: get(name) for said, name in variables.items()}

    return read, generators
