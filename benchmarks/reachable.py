"""Hash the code that a job can reach: the part of a record's key that depends on code.

The reach of a function is a set of top-level definitions of this project, found statically: the
function itself, the definitions that its body names, those that they name, and so on through
imports. An imported module always adds its statements with side effects and its definitions with
registering decorators. A module that is used as a value is reached as a whole.

Definitions are hashed as syntax trees without docstrings and comments, together with the
definitions that their names refer to. So documentation, layout, the order of definitions and moving
one to another file change nothing. A data file beside a module counts if the code names it.

Not detected: attributes accessed by a computed name, except on modules, and the versions of other
packages, which each record has.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PROJECT = frozenset({"reference", "torch_impl", "benchmarks", "tests"})
WITHOUT_EFFECT = (
    *("benchmarks.children", "benchmarks.cli", "benchmarks.errors", "benchmarks.files"),
    *("benchmarks.kinds", "benchmarks.reachable", "benchmarks.records", "benchmarks.run_folder"),
    "benchmarks.workers",
    *("torch_impl.checkpoints.checkpoint", "torch_impl.common.files"),
    *("benchmarks.report.build", "benchmarks.report.document", "benchmarks.report.evidence"),
    *("benchmarks.report.html", "benchmarks.report.markdown", "benchmarks.report.pictures"),
    "benchmarks.report.sections",
)
"""Modules and packages that store or show values, but never change them."""
_PLAIN_DECORATORS = frozenset(
    {
        *("abstractmethod", "cache", "cached_property", "classmethod", "contextmanager"),
        *("dataclass", "final", "lru_cache", "no_grad", "once_differentiable", "overload"),
        *("property", "runtime_checkable", "staticmethod", "without_autocast", "wraps"),
    }
)
"""Decorators that do not register their function."""
DATA = (".json", ".csv", ".txt")
"""Suffixes of data files beside a module."""


@dataclass(frozen=True)
class Target:
    """A definition ``name`` of a module, or the module itself if None."""

    module: str
    name: str | None = None


@dataclass
class Module:
    """A source file's top-level definitions, imported names, imported modules and effects."""

    name: str
    definitions: dict[str, list[ast.stmt]] = field(default_factory=dict)
    imports: dict[str, Target] = field(default_factory=dict)
    imported: set[str] = field(default_factory=set)
    effects: list[ast.stmt] = field(default_factory=list)


@cache
def path_of(name: str) -> Path | None:
    """The source file of a module of this project; None if there is no such module."""
    if name.partition(".")[0] not in PROJECT:
        return None
    place = ROOT.joinpath(*name.split("."))
    candidates = (place.with_suffix(".py"), place / "__init__.py")
    return next((path for path in candidates if path.is_file()), None)


def _parents(name: str) -> Iterator[str]:
    """The module and its parent packages, all of which its import runs."""
    while name:
        yield name
        name = name.rpartition(".")[0]


@dataclass(frozen=True, eq=False)
class Facts:
    """The facts of one statement, independent of other code.

    Args:
        content: its syntax tree without docstrings, as text.
        imports: the import statements in it.
        chains: each name in it, with the attributes accessed on it.
        files: strings that may name a data file.
    """

    content: str
    imports: list[ast.Import | ast.ImportFrom]
    chains: list[tuple[str, list[str]]]
    files: set[str]


@cache
def _facts(statement: ast.stmt) -> Facts:
    found = Facts(repr(_canonical(statement)), [], [], set())
    pending: list[ast.AST] = [statement]
    while pending:
        node = pending.pop()
        chain: list[str] = []
        while isinstance(node, ast.Attribute):
            chain.insert(0, node.attr)
            node = node.value
        if isinstance(node, ast.Name):
            found.chains.append((node.id, chain))
        elif isinstance(node, ast.Constant):
            text = node.value
            if isinstance(text, str) and text.endswith(DATA) and "/" not in text:
                found.files.add(text)
        else:
            if isinstance(node, ast.Import | ast.ImportFrom):
                found.imports.append(node)
            pending.extend(ast.iter_child_nodes(node))
    return found


def _imports(statement: ast.stmt, package: str) -> tuple[dict[str, Target], set[str]]:
    """The names that the imports in ``statement`` bind, and the modules that they run."""
    bound: dict[str, Target] = {}
    run: set[str] = set()
    for node in _facts(statement).imports:
        if isinstance(node, ast.Import):
            for alias in node.names:
                run.add(alias.name)
                first = alias.name if alias.asname else alias.name.partition(".")[0]
                bound[alias.asname or first] = Target(first)
            continue
        base = node.module or ""
        if node.level:
            parts = package.split(".")
            base = ".".join([*parts[: len(parts) - node.level + 1], *filter(None, [base])])
        for alias in node.names:
            inner = f"{base}.{alias.name}"
            is_module = path_of(inner) is not None
            run.add(inner if is_module else base)
            target = Target(inner) if is_module else Target(base, alias.name)
            bound[alias.asname or alias.name] = target
    ours = {name: target for name, target in bound.items() if path_of(target.module)}
    return ours, {name for name in run if path_of(name)}


def _registers(statement: ast.stmt) -> bool:
    """Whether a decorator may register the definition elsewhere."""
    for decorator in getattr(statement, "decorator_list", ()):
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        if name not in _PLAIN_DECORATORS:
            return True
    return False


def _bound(statement: ast.stmt) -> list[str]:
    """The names that a top-level statement defines; none if it has side effects only."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [statement.name]
    if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        leaves = [leaf for target in targets for leaf in ast.walk(target)]
        if not any(isinstance(leaf, ast.Attribute | ast.Subscript) for leaf in leaves):
            return [leaf.id for leaf in leaves if isinstance(leaf, ast.Name)]
    return []


_parse = cache(ast.parse)
"""Cached by text: trees are never changed, so that `_facts` can be cached by statement."""


@cache
def module(name: str) -> Module:
    """Parse a module."""
    path = path_of(name)
    assert path is not None, name
    tree = _parse(path.read_text(encoding="utf-8"))
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found = Module(name)
    for statement in tree.body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            bound, run = _imports(statement, package)
            found.imports |= bound
            found.imported |= run
            continue
        if isinstance(statement, ast.If | ast.Try | ast.With):
            found.imports |= _imports(statement, package)[0]
        names = _bound(statement)
        for each in names:
            found.definitions.setdefault(each, []).append(statement)
        if (not names and not _is_docstring(statement)) or _registers(statement):
            found.effects.append(statement)
    return found


def _is_docstring(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _resolve(target: Target) -> Iterator[Target]:
    """Follow a name through re-exports to its definition."""
    if target.name is None:
        yield target
        return
    inner = f"{target.module}.{target.name}"
    holder = module(target.module)
    if target.name in holder.definitions:
        yield target
    elif target.name in holder.imports:
        yield from _resolve(holder.imports[target.name])
    elif path_of(inner):
        yield Target(inner)
    elif not (target.name.startswith("__") and target.name.endswith("__")):
        yield Target(target.module)  # created at run time: depends on the whole module


def _named(statement: ast.stmt, within: Module, package: str) -> Iterator[tuple[str, Target]]:
    """The names in a statement that refer to code of this project, and their targets."""
    local, run = _imports(statement, package)
    yield from (("", Target(name, "")) for name in run)
    known: Mapping[str, Target] = {**within.imports, **local}
    for first, chain in _facts(statement).chains:
        if first in known:
            name = ".".join([first, *chain])
            yield from ((name, found) for found in _follow(known[first], chain))
        elif first in within.definitions:
            yield first, Target(within.name, first)


def _follow(target: Target, chain: list[str]) -> Iterator[Target]:
    """Resolve an imported name and its attributes, as far as they are modules."""
    for found in _resolve(target):
        if found.name is None and chain:
            yield from _follow(Target(found.module, chain[0]), chain[1:])
        else:
            yield found


def _excluded(name: str, without: Collection[str] = ()) -> bool:
    return any(parent in WITHOUT_EFFECT or parent in without for parent in _parents(name))


def _origin(job: Callable[..., Any]) -> Target:
    """The top-level definition that contains a function, or its module if there is none."""
    while isinstance(job, partial):
        job = job.func
    name = job.__qualname__.partition(".")[0]
    known = path_of(job.__module__) and name in module(job.__module__).definitions
    return Target(job.__module__, name if known else None)


@dataclass(frozen=True)
class Reached:
    """The statements of a definition or of a module's effects.

    Args:
        names: the project's names in them, with their targets.
        content: the hash of their syntax trees and of the data files that they name.
    """

    names: frozenset[tuple[str, Target]]
    content: str


@cache
def _reached(target: Target) -> Reached:
    """The statements of a definition, or a module's effects for the name ""."""
    within, path = module(target.module), path_of(target.module)
    assert path is not None
    package = target.module if _is_package(target.module) else target.module.rpartition(".")[0]
    statements = within.definitions[target.name] if target.name else within.effects
    names = frozenset(name for each in statements for name in _named(each, within, package))
    facts = [_facts(each) for each in statements if not _is_docstring(each)]
    files = {name: path.with_name(name) for of in facts for name in of.files}
    data = {name: _sha256(each.read_bytes()) for name, each in files.items() if each.is_file()}
    content = ", ".join(of.content for of in facts)
    return Reached(names, _sha256(f"[[{content}], {sorted(data.items())}]".encode()))


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def reach(*jobs: Callable[..., Any], without: Collection[str] = ()) -> dict[Target, Reached]:
    """The definitions that the jobs can reach, and the effects of the modules they import.

    Args:
        jobs: functions or classes of this project.
        without: modules and packages that the jobs import but never run.

    Raises:
        LookupError: a job is not of this project, or in `WITHOUT_EFFECT`.
    """
    found: dict[Target, Reached] = {}
    imported: set[str] = set()
    pending = [_origin(job) for job in jobs]
    for target in pending:
        if not path_of(target.module) or _excluded(target.module):
            raise LookupError(f"{target.module}.{target.name} is no code that can be in a key")
    while pending:
        target = pending.pop()
        if target in found or _excluded(target.module, without):
            continue
        within = module(target.module)
        if target.module not in imported:
            imported.add(target.module)
            pending.append(Target(target.module, ""))
            pending += [Target(each, "") for each in _parents(target.module) if path_of(each)]
            pending += [Target(each, "") for each in within.imported]
        if target.name is None:
            pending += [Target(target.module, name) for name in within.definitions]
            pending += within.imports.values() if _is_package(target.module) else ()
            continue
        found[target] = _reached(target)
        pending += [each for _, each in found[target].names]
    return found


def _is_package(name: str) -> bool:
    path = path_of(name)
    return path is not None and path.name == "__init__.py"


def _canonical(node: Any) -> Any:
    """A syntax tree without docstrings as nested lists, independent of the Python version."""
    if isinstance(node, list):
        return [_canonical(each) for each in node if not _is_docstring(each)]
    if isinstance(node, ast.AST):
        fields = [(name, _canonical(getattr(node, name, None))) for name in node._fields]
        return [type(node).__name__, *(pair for pair in fields if pair[1] not in (None, []))]
    return repr(node) if node is not None else None


@cache
def fingerprint(*jobs: Callable[..., Any], without: tuple[str, ...] = ()) -> str:
    """The hexadecimal SHA-256 of the code that the jobs can reach; see `reach`."""
    found = reach(*jobs, without=without)
    lines = []
    for reached in found.values():
        # targets are identified by content, so that a definition may move
        named = ((name, found[each].content) for name, each in reached.names if each in found)
        lines.append(repr([reached.content, sorted({pair for pair in named if pair[0]})]))
    return _sha256("\n".join(sorted(lines)).encode())


def forget() -> None:
    """Clear the caches, for tests that change sources."""
    for cached in (path_of, module, _reached, fingerprint):
        cached.cache_clear()
