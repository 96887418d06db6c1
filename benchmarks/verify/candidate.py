"""Somebody else's function: loading it, and calling it with NumPy arrays whatever it works in."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import numpy as np
import torch

from benchmarks.errors import InputError

FRAMEWORKS = ("numpy", "torch")


class CandidateError(Exception):
    """The candidate itself raised, or returned what is no array: a finding, not a crash."""


class Candidate:
    """A function that takes and returns NumPy arrays; PyTorch ones are converted on the way.

    The function gets copies, so that one that works in place cannot spoil a comparison unseen.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        framework: str = "numpy",
        device: str = "cpu",
        folder: str | None = None,
    ) -> None:
        """Wrap ``function``; ``device`` is for PyTorch functions only.

        Modules in ``folder`` can be imported while the function runs.
        """
        self.function, self.name, self.framework, self.device = function, name, framework, device
        self.folder = folder

    def like(self, function: Callable[..., Any], framework: str | None = None) -> Candidate:
        """Another function of the same origin, in the same framework if none is said."""
        return Candidate(function, self.name, framework or self.framework, self.device, self.folder)

    def raw(self, *arguments: Any, **named: Any) -> Any:
        """What the function returns for arguments that are already in its framework.

        Raises:
            CandidateError: the function raised.
        """
        try:
            # what overflows shows in the result, and would be said again for every case
            with _importable(self.folder), np.errstate(all="ignore"):
                return self.function(*arguments, **named)
        except (Exception, SystemExit) as error:
            raise CandidateError(f"raised {type(error).__name__}: {error}") from error

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """The function's result, tensors as arrays.

        Raises:
            CandidateError: the function raised, or changed an argument in place.
        """
        given = [self.convert(value) for value in arguments]
        given_by_name = {name: self.convert(value) for name, value in named.items()}
        result = to_numpy(self.raw(*given, **given_by_name))
        for i, (now, before) in enumerate(zip(given, arguments, strict=True), start=1):
            if not _same(to_numpy(now), before):
                raise CandidateError(f"changed its argument {i} in place")
        return result

    def convert(self, value: Any) -> Any:
        """``value`` as the function wants it: a copy, in its framework and on its device."""
        if self.framework == "torch":
            return to_torch(value, self.device)
        return copied(value)


def copied(value: Any) -> Any:
    """A copy of every array in ``value``; everything else as it is."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, Mapping):
        return {key: copied(item) for key, item in value.items()}
    return value


def to_torch(value: Any, device: str = "cpu") -> Any:
    """``value`` with every array in it as a tensor on ``device``."""
    if isinstance(value, np.ndarray):
        if value.dtype.name == "bfloat16":  # torch has no conversion from the NumPy extension type
            value = value.astype(np.float32)
            return torch.from_numpy(value.copy()).to(device, torch.bfloat16)
        # a copy has positive strides, which torch asks for
        return torch.from_numpy(value.copy()).to(device)
    if isinstance(value, Mapping):
        return {key: to_torch(item, device) for key, item in value.items()}
    return value


def to_numpy(value: Any) -> Any:
    """``value`` with every tensor in it as an array; half precisions as float32."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        return (value.float() if value.dtype in (torch.bfloat16, torch.float16) else value).numpy()
    if isinstance(value, Mapping):
        return {key: to_numpy(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)) and any(isinstance(item, torch.Tensor) for item in value):
        return type(value)(to_numpy(item) for item in value)
    return value


def _same(now: Any, before: Any) -> bool:
    if isinstance(before, Mapping):
        return all(_same(now[key], before[key]) for key in before)
    if isinstance(before, np.ndarray):
        return bool((np.asarray(now, np.float64) == before.astype(np.float64)).all())
    return True


def one_sequence(candidate: Candidate, sequences: int) -> Candidate:
    """A candidate for padded batches as one for single sequences: a batch of one, all of it valid.

    ``sequences`` is how many of its first arguments have a batch axis.
    """

    def function(*arguments: Any) -> Any:
        batch = [argument[None] for argument in arguments[:sequences]]
        lengths = candidate.convert(np.array([len(arguments[sequences - 1])]))
        return candidate.function(*batch, *arguments[sequences:], lengths=lengths)[0]

    return candidate.like(function)


def load(where: str, framework: str = "numpy", device: str = "cpu") -> Candidate:
    """The candidate at ``package.module:callable`` or ``path/file.py:callable``.

    Raises:
        InputError: there is no such module, file or callable, or importing it raised.
    """
    source, colon, attribute = where.rpartition(":")
    if not colon or not source or not attribute:
        raise InputError(
            f"candidate {where!r}: expected package.module:callable or path/file.py:callable"
        )
    by_path = source.endswith(".py")
    # what the user's module imports may lie beside it, as for a script
    folder = str(Path(source).resolve().parent if by_path else Path.cwd())
    value: Any = _module(source, by_path, folder)
    for part in attribute.split("."):
        if not hasattr(value, part):
            raise InputError(f"candidate {where!r}: {source} has no {attribute!r}")
        value = getattr(value, part)
    if not callable(value):
        raise InputError(f"candidate {where!r}: a {type(value).__name__}, expected a callable")
    return Candidate(value, where, framework, device, folder)


@contextmanager
def _importable(folder: str | None) -> Iterator[None]:
    """For a while modules in ``folder`` can be imported."""
    if folder is None:
        yield
        return
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        if folder in sys.path:  # whoever ran may have taken it away
            sys.path.remove(folder)


def _module(source: str, by_path: bool, folder: str) -> ModuleType:
    path = Path(source)
    if by_path and not path.is_file():
        raise InputError(f"{source}: no such file, expected a Python file with the candidate")
    try:
        with _importable(folder):
            if not by_path:
                return importlib.import_module(source)
            name = f"_candidate_{path.stem}"
            spec = importlib.util.spec_from_loader(name, _Source(name, str(path)))
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[name] = module
            spec.loader.exec_module(module)
            return module
    except (Exception, SystemExit) as error:
        raise InputError(
            f"candidate's module {source}: importing it raised {type(error).__name__}: {error}"
        ) from error


class _Source(SourceFileLoader):
    """Compiles the file anew: bytecode is kept by second and size, which an edit may not change."""

    def get_code(self, fullname: str) -> CodeType | None:
        return self.source_to_code(self.get_data(self.path), self.path)


def takes_lengths(candidate: Candidate, contract: Sequence[str]) -> bool:
    """Whether the candidate takes a padded batch, which it says by an argument named ``lengths``.

    The contract's other arguments are passed by position: their names are the candidate's business.

    Raises:
        InputError: the candidate cannot be called with the arguments of the contract.
    """
    try:
        signature = inspect.signature(candidate.function)
    except (TypeError, ValueError):  # a builtin without a signature: taken at its word
        return False
    batched = "lengths" in signature.parameters
    try:
        signature.bind(*contract, **({"lengths": None} if batched else {}))
    except TypeError:
        expected = ", ".join(contract)
        raise InputError(
            f"candidate {candidate.name} takes {signature}, expected ({expected})"
        ) from None
    return batched


def detect_framework(call: Callable[[str], Any], candidate: Candidate) -> str:
    """The framework in which ``call(framework)`` runs the candidate: NumPy if it can, else PyTorch.

    Where neither runs: PyTorch if the candidate's module mentions torch.
    """
    for framework in FRAMEWORKS:
        try:
            call(framework)
        except CandidateError:
            continue
        return framework
    module = sys.modules.get(getattr(candidate.function, "__module__", ""), None)
    return "torch" if hasattr(module, "torch") else "numpy"
