"""Import a candidate's module, from a package or a file, and see how it is called."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import numpy as np

from benchmarks.errors import InputError
from benchmarks.verify.originals import named, own_builtins

own_builtins(globals())

PADDING = ("mask", "lengths")
"""Arguments that mark the valid rows of a padded batch: (B, L) booleans, or lengths (B,)."""


def loaded(where: str, folder: str | None = None) -> tuple[Callable[..., Any], str]:
    """The callable at ``package.module:callable`` or ``path/file.py:callable``, and its folder.

    Raises:
        InputError: there is no such module, file or callable, or importing it raised.
    """
    source, colon, attribute = where.rpartition(":")
    if not colon or not source or not attribute:
        raise InputError(
            f"candidate {where!r}: expected package.module:callable or path/file.py:callable"
        )
    by_path = source.endswith(".py")
    # the module may import modules beside it, as a script
    folder = str(Path(source).resolve().parent) if by_path else folder or str(Path.cwd())
    value: Any = _module(source, by_path, folder)
    for part in attribute.split("."):
        if not hasattr(value, part):
            raise InputError(f"candidate {where!r}: {source} has no {attribute!r}")
        value = getattr(value, part)
    if not callable(value):
        raise InputError(f"candidate {where!r}: {named(type(value))}, expected a callable")
    return value, folder


@contextmanager
def importable(folder: str | None) -> Iterator[None]:
    """Within, modules in ``folder`` can be imported."""
    if folder is None:
        yield
        return
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        if folder in sys.path:  # the candidate may have removed it
            sys.path.remove(folder)


def _module(source: str, by_path: bool, folder: str) -> ModuleType:
    path = Path(source)
    if by_path and not path.is_file():
        raise InputError(f"{source}: no such file, expected a Python file with the candidate")
    try:
        with importable(folder):
            if not by_path:
                return importlib.import_module(source)
            name = f"_candidate_{path.stem}"
            spec = importlib.util.spec_from_loader(name, _Source(name, str(path)))
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[name] = module
            spec.loader.exec_module(module)
            return module
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        said = str(error).strip().splitlines()[:1]
        raise InputError(
            f"candidate's module {source}: importing it raised {type(error).__name__}: "
            f"{''.join(said)}"
        ) from error


class _Source(SourceFileLoader):
    """Always compile: cached bytecode is keyed by second and size, which an edit may keep."""

    def get_code(self, fullname: str) -> CodeType | None:
        return self.source_to_code(self.get_data(self.path), self.path)


def all_valid(name: str, batch: int, rows: int) -> Any:
    """The value of a ``PADDING`` argument for a batch without padding."""
    mask = np.ones((batch, rows), np.bool_)
    return mask if name == "mask" else mask.sum(1)


def padding_argument(function: Callable[..., Any], arguments: Sequence[str]) -> str:
    """The function's argument of ``PADDING`` if it takes padded batches, else an empty string.

    ``arguments`` are positional; the function may name them differently.

    Raises:
        TypeError: it cannot be called with ``arguments``.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a builtin without a signature cannot be checked
        return ""
    others = signature.parameters.keys() - {*arguments}
    name = next((name for name in PADDING if name in others), "")
    try:
        signature.bind(*arguments, **({name: None} if name else {}))
    except TypeError:
        raise TypeError(f"takes {signature}, expected ({', '.join(arguments)})") from None
    return name


class InContext:
    """A function of this project whose forward and backward pass run in the context ``within()``,
    which its ``Candidate`` enters.
    """

    def __init__(self, function: Callable[..., Any], within: Callable[[], Any]) -> None:
        self.function, self.within = function, within
        self.__signature__ = inspect.signature(function)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.function(*arguments, **named)
