"""What imports what: the oracle NumPy alone, PyTorch's side no harness, the harness in no ring."""

import ast
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def imported(path):
    """The dotted names of the modules that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            own = path.relative_to(ROOT).parts[: -node.level] if node.level else ()
            module = ".".join([*own, *filter(None, [node.module])])
            for name in node.names:
                inner = ROOT.joinpath(*module.split("."), name.name)
                is_module = inner.is_dir() or inner.with_suffix(".py").is_file()
                yield f"{module}.{name.name}" if is_module else module


@cache
def by_file(folder):
    """What each file of a folder imports."""
    return {path: set(imported(path)) for path in ROOT.joinpath(folder).rglob("*.py")}


def roots(folder):
    """The packages that a folder's files import from."""
    return {name.split(".")[0] for names in by_file(folder).values() for name in names}


def test_the_oracle_imports_numpy_alone():
    assert roots("reference") - sys.stdlib_module_names == {"numpy", "reference"}


def test_the_implementations_import_neither_the_harness_nor_tests():
    assert "torch" in roots("torch_impl")
    assert not roots("torch_impl") & {"benchmarks", "tests"}


def test_no_test_imports_another_and_nothing_else_imports_tests():
    names = {name for names in by_file("tests").values() for name in names}
    assert "tests.support.parity" in names
    assert not [name for name in names if name.startswith("tests.test_")]
    assert not (roots("benchmarks") | roots("reference")) & {"tests"}


def module_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def assert_no_circle(needs):
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        pytest.fail(f"an import circle: {' <- '.join(error.args[1])}")


FOLDERS = ("reference", "torch_impl", "benchmarks")


def test_no_module_imports_itself_through_others():
    files = {path: names for folder in FOLDERS for path, names in by_file(folder).items()}
    ours = {module_of(path) for path in files}
    assert_no_circle({module_of(path): names & ours for path, names in files.items()})


@pytest.mark.parametrize("folder", FOLDERS)
def test_packages_import_each_other_in_one_direction(folder):
    """A module beside the packages counts as one."""
    needs = {}
    for path, names in by_file(folder).items():
        own = path.relative_to(ROOT / folder).with_suffix("").parts[0]
        parts = (name.split(".") for name in names)
        others = {inner[0] for outer, *inner in parts if outer == folder and inner}
        needs.setdefault(own, set()).update(others - {own})
    assert needs
    assert_no_circle(needs)
