"""Import a candidate's module, from a package or a file."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from benchmarks.errors import InputError


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
        raise InputError(f"candidate {where!r}: a {type(value).__name__}, expected a callable")
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
