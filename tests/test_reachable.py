"""The code in a key: prose and unreached code change nothing, a reached constant does."""

import ast
import importlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import reachable, records
from benchmarks.papers import experiment
from benchmarks.training.fit import fit

SOURCES = {
    "benchmarks/__init__.py": "",
    "benchmarks/job.py": """
        '''What is measured.'''
        from benchmarks import parts
        from benchmarks.parts import helper as help_me
        from benchmarks.registry import TABLE
        from benchmarks.errors import InputError

        HERE = 1
        ALONE = 2

        def job(x):
            '''Measure.'''
            if x < 0:
                raise InputError("x")
            return help_me(x) + parts.CONSTANT + HERE + len(TABLE)  # a comment
    """,
    "benchmarks/parts.py": """
        from benchmarks.deeper import Base
        CONSTANT = 3
        UNUSED = 4

        class Helper(Base):
            def run(self, x):
                return x

        def helper(x):
            from benchmarks.late import late
            return Helper().run(x) + late()
    """,
    "benchmarks/deeper.py": "class Base:\n    factor = 5\n",
    "benchmarks/late.py": "def late():\n    return 6\n",
    "benchmarks/registry.py": """
        TABLE = {}

        def register(function):
            TABLE[function.__name__] = function
            return function

        @register
        def entry():
            return 7

        def plain():
            return 8
    """,
    "benchmarks/errors.py": "class InputError(Exception):\n    code = 9\n",
    "benchmarks/elsewhere.py": "NOT_IMPORTED = 10\n",
}
REACHED = {1, 3, 5, 6, 7}
"""The constants of SOURCES that `job` reaches: 9 is only how an error is told."""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Write a small project, and say what its job's fingerprint is in a version of the sources."""
    root = tmp_path_factory.mktemp("project")

    def fingerprint(change=lambda path, text: text):
        for path, text in SOURCES.items():
            lines = text.split("\n")
            indent = 8 if len(lines) > 3 else 0
            plain = "\n".join(line[indent:] for line in lines)
            (root / path).parent.mkdir(exist_ok=True)
            (root / path).write_text(change(path, plain))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reachable, "ROOT", root)
            for cached in (reachable.path_of, reachable.module, reachable.fingerprint):
                cached.cache_clear()
            job = type("job", (), {"__module__": "benchmarks.job"})
            try:
                return reachable.fingerprint(job)
            finally:
                for cached in (reachable.path_of, reachable.module, reachable.fingerprint):
                    cached.cache_clear()

    return fingerprint


@pytest.mark.parametrize("number", range(1, 11))
def test_a_constant_counts_exactly_where_the_job_reaches_it(project, number):
    def change(path, text):
        tree = ast.parse(text)
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and node.value == number:
                node.value = 1000
        return ast.unparse(tree)

    assert (project(change) != project()) == (number in REACHED)


@given(st.sampled_from(sorted(SOURCES)), st.text("abc xyz", min_size=1, max_size=20))
def test_prose_and_layout_change_nothing(project, edited, words):
    def change(path, text):
        if path != edited:
            return text
        tree = ast.parse(text)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
                if reachable._is_docstring((node.body or [ast.Pass()])[0]):
                    node.body[0].value.value = words
                elif isinstance(node, ast.FunctionDef):
                    node.body.insert(0, ast.Expr(ast.Constant(words)))
        return f"# {words}\n\n" + ast.unparse(tree)

    assert project(change) == project()


def test_the_order_of_definitions_and_code_that_is_not_reached_change_nothing(project):
    def change(path, text):
        tree = ast.parse(text)
        definitions = [s for s in tree.body if isinstance(s, ast.FunctionDef | ast.ClassDef)]
        others = [s for s in tree.body if s not in definitions]
        tree.body = [*others, *reversed(definitions)] if path.endswith("parts.py") else tree.body
        return ast.unparse(tree) + "\ndef added():\n    return 99\n"

    assert project(change) == project()


def test_what_trains_reaches_the_model_and_its_loss_and_not_the_report():
    found = {(target.module, target.name) for target in reachable.reach(fit)}
    assert ("torch_impl.training.objectives", "cross_entropy") in found
    assert ("torch_impl.expansion.functional", "static_expansion") in found
    assert not [module for module, _ in found if module.startswith("benchmarks.report")]


def test_kernels_are_reached_though_they_are_loaded_by_path():
    target = reachable.Target("torch_impl.kernels.programs.static_forward", "")
    assert reachable.reach(fit)[target]


def test_a_key_needs_code_of_this_project():
    with pytest.raises(LookupError, match="json"):
        records.key_of(importlib.import_module("json").dumps)


@given(st.integers(), st.integers())
def test_a_key_tells_options_and_jobs_apart(a, b):
    one, other = records.key_of(experiment.rows_by_seed, a), records.key_of(fit, a)
    assert one != other
    assert (records.key_of(fit, b) == other) == (a == b)
    assert records.key_of([fit, experiment.rows_by_seed], a) not in (one, other)
