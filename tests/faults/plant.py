"""Planting a fault: a function runs with its source changed, whoever has imported it."""

from __future__ import annotations
import __future__

import ast
import importlib
import inspect
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType


@dataclass(frozen=True)
class Fault:
    """One slip: in ``function`` (module:name) ``right`` is replaced by ``wrong``.

    ``test`` is the node id, below ``tests/``, of the test that must fail for it.
    """

    name: str
    says: str
    function: str
    right: str
    wrong: str
    test: str


CONFORMANCE = "test_conformance.py::test_an_implementation_of_ours_is_its_operator"
"""The kit's specifications: of one implementation with its name in brackets."""


@contextmanager
def planted(fault: Fault) -> Iterator[None]:
    """The fault's function is wrong inside the block.

    Raises:
        ValueError: the function's source does not have the fault's place exactly once.
    """
    function = target(fault)
    right = function.__code__
    function.__code__ = wrong_code(fault)
    try:
        yield
    finally:
        function.__code__ = right


def target(fault: Fault) -> FunctionType:
    """The function, or the method's function, without its decorators."""
    module, _, name = fault.function.partition(":")
    value: object = importlib.import_module(module)
    for part in name.split("."):
        value = inspect.getattr_static(value, part)
    value = value.fget if isinstance(value, property) else value
    function = inspect.unwrap(value)  # type: ignore[arg-type]
    assert isinstance(function, FunctionType)
    return function


def wrong_code(fault: Fault) -> object:
    """The function's code object with the fault in it."""
    function = target(fault)
    source = textwrap.dedent(inspect.getsource(function))
    if source.count(fault.right) != 1:
        count = source.count(fault.right)
        raise ValueError(f"{fault.name}: {fault.function} has {fault.right!r} {count} times, not 1")
    (tree,) = ast.parse(source.replace(fault.right, fault.wrong)).body
    assert isinstance(tree, ast.FunctionDef)
    tree.decorator_list = []
    flags = __future__.annotations.compiler_flag
    module = ast.Module([tree], [])
    namespace: dict[str, object] = {}
    code = compile(module, f"<fault {fault.name}>", "exec", flags, dont_inherit=True)
    exec(code, function.__globals__.copy(), namespace)
    return namespace[function.__name__].__code__
