"""This project's implementations as candidates, with the same interfaces and properties.

A function in this package with an operator's name is our implementation of that operator. Left out
is ``GraphedBeamSearch``, which needs CUDA graphs: it must find what ``beam_search`` does.
"""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from benchmarks.verify.loading import InContext
from benchmarks.verify.operators import OPERATORS
from benchmarks.verify.project import (
    arnet,
    decoding,
    layers,
    metrics,
    middle_out,
    optimisation,
    recurrent,
)
from benchmarks.verify.project.tiling import recomputed, small_tiles
from torch_impl.kernels import interpreted

FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: function
    for module in (layers, recurrent, arnet, middle_out, optimisation, decoding, metrics)
    for name, function in vars(module).items()
    if name in OPERATORS
}
"""Our implementations by the operator's name."""

EXPANSIONS = ("static_expansion", "dynamic_expansion")


@dataclass(frozen=True)
class ProjectImplementation:
    """One of this project's implementations of an operator, as a candidate."""

    operator: str
    implementation: str
    function: Callable[..., Any]
    framework: str = "torch"
    share: int = 1
    """Divisor of the number of cases: Triton's interpreter is slow."""

    @property
    def name(self) -> str:
        """The function as Python source, for pasting into a test."""
        function = self.function
        if isinstance(function, InContext):
            whole = replace(self, function=function.function).name
            return f"project.InContext({whole}, project.{function.within.__name__})"
        if isinstance(function, partial):
            given = "".join(f", {name}={value!r}" for name, value in function.keywords.items())
            return f"partial({replace(self, function=function.func).name}{given})"
        module = function.__module__.removeprefix(f"{__name__}.")
        if module == function.__module__:  # from another package
            return f"project.FUNCTIONS[{self.operator!r}]"
        return f"project.{module}.{function.__name__}"

    @property
    def is_of_small_cases(self) -> bool:
        """Whether it runs with small chunks and tiles, or interpreted: not on large cases."""
        return isinstance(self.function, InContext)

    def with_small_tiles(self) -> ProjectImplementation:
        """A copy that runs with small chunks and tiles."""
        function = InContext(self.function, small_tiles)
        return replace(self, implementation=f"{self.implementation}, parts", function=function)

    def interpreted(self) -> ProjectImplementation:
        """A copy whose kernels run on Triton's interpreter."""
        return replace(self, function=InContext(self.function, interpreted))


def of_form(operator: str, implementation: str) -> ProjectImplementation:
    """The project's operator with an ``implementation`` argument."""
    function = partial(FUNCTIONS[operator], implementation=implementation)
    return ProjectImplementation(operator, implementation, function)


def implementations(device: str = "cpu") -> list[ProjectImplementation]:
    """All of this project's implementations that the device can run, also with small chunks."""
    fused = device.startswith("cuda") and torch.version.cuda and importlib.util.find_spec("triton")
    found = []
    for name, function in FUNCTIONS.items():
        options = inspect.signature(function).parameters
        if "implementation" in options:
            quick = of_form(name, "factored" if name in EXPANSIONS else "custom_backward")
            found += [of_form(name, "literal"), quick, quick.with_small_tiles()]
            if name == "static_expansion":
                function = InContext(quick.function, recomputed)
                found.append(
                    replace(quick, implementation="factored, recomputed", function=function)
                )
            found += [of_form(name, "fused")] if fused and name in EXPANSIONS else []
            if name == "lstm":
                found.append(ProjectImplementation(name, "library", recurrent.library_lstm))
            if "attentive" in options:
                for form in ("literal", "custom_backward"):
                    attentive = partial(function, implementation=form, attentive=True)
                    found.append(ProjectImplementation(name, f"{form}, attentive", attentive))
            if name == "attentive_lstm":
                beams = partial(function, implementation="literal", by_beams=True)
                found.append(ProjectImplementation(name, "literal, beams", beams))
            if name == "middle_out_captioner":
                ended = partial(function, implementation="custom_backward", beside_ended=True)
                found.append(ProjectImplementation(name, "beside ended", ended))
                steps = partial(middle_out.captioner_of_memory, by_steps=True)
                found.append(
                    ProjectImplementation(name, "captioner", middle_out.captioner_of_memory)
                )
                found.append(ProjectImplementation(name, "incremental", steps, "numpy"))
        elif "device" in options:
            ours = ProjectImplementation(name, "torch", partial(function, device=device))
            found += [ours, ours.with_small_tiles()] if name.endswith("beam_search") else [ours]
            if name == "beam_search":
                exported = decoding.exported_beam_search
                found.append(ProjectImplementation(name, "exported", exported, "numpy"))
        elif "by_steps" in options:
            steps = partial(function, by_steps=True)
            cached = ProjectImplementation(name, "incremental", steps, "numpy")
            found += [ProjectImplementation(name, "torch", function)]
            found += [cached, cached.with_small_tiles()]
            if "masked" in options:
                masks = partial(function, by_steps=True, masked=True)
                found.append(ProjectImplementation(name, "shared masks", masks, "numpy"))
        elif function.__module__ == metrics.__name__:
            found.append(ProjectImplementation(name, "pycocoevalcap", function, "numpy"))
        else:
            found.append(ProjectImplementation(name, "torch", function))
            if "by_index" in options:
                indexed = partial(function, by_index=True)
                found.append(ProjectImplementation(name, "by index", indexed))
    return found
