"""The code in a key: prose and unreached code change nothing, a reached constant does."""

import ast
import importlib
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import reachable, records
from benchmarks.cli.main import main
from benchmarks.papers import experiment
from benchmarks.papers.experiment import Place
from benchmarks.papers.lstm_readonly import read_only
from benchmarks.report import jobs
from benchmarks.training.fit import fit
from tests.support import caption_files

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
            reachable.forget()
            job = type("job", (), {"__module__": "benchmarks.job"})
            try:
                return reachable.fingerprint(job)
            finally:
                reachable.forget()

    fingerprint.root = root
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
    assert reachable.reach(fit)[target].names


def test_a_key_needs_code_of_this_project_that_has_an_effect():
    for function in (importlib.import_module("json").dumps, records.newest):
        with pytest.raises(LookupError, match="is no code that can be in a key"):
            records.key_of(function)


def test_another_definition_under_the_same_name_counts(project):
    """Both are reached anyhow: what changes is which of them a name stands for."""

    def two(path, text):
        if path == "benchmarks/parts.py":
            return text + "\ndef other(x):\n    return x - 1\n"
        if path == "benchmarks/job.py":
            both = "from benchmarks.parts import other\n" + text
            return both.replace("+ HERE", "+ other(1) + HERE")
        return text

    def swapped(path, text):
        return two(path, text).replace("import helper as help_me", "import other as help_me")

    def unused(path, text):
        return two(path, text).replace("import other", "import helper")

    assert len({project(change) for change in (two, swapped, unused)}) == 3


def test_a_name_that_is_imported_on_condition_is_reached(project):
    def guarded(value):
        def change(path, text):
            if path == "benchmarks/job.py":
                late = "try:\n    from benchmarks.elsewhere import NOT_IMPORTED\n"
                late += "except ImportError:\n    NOT_IMPORTED = 0\n"
                return late + text.replace("+ HERE", "+ HERE + NOT_IMPORTED")
            return text.replace("= 10", f"= {value}")

        return change

    assert project(guarded(10)) != project(guarded(11))


def test_data_beside_a_module_count_where_it_names_them(project):
    def reads(path, text):
        return text + "\nFILE = 'numbers.json'\n" * (path == "benchmarks/late.py")

    def job_reads(path, text):
        return text.replace("return 6", "return FILE") if "late" in path else text

    def change(path, text):
        return job_reads(path, reads(path, text))

    project()  # the folder is there
    beside = project.root / "benchmarks"
    found = []
    for content in ("[1]", "[2]"):
        (beside / "numbers.json").write_text(content)
        found.append((project(), project(change)))
    (beside / "numbers.json").unlink()
    (without, named), (same, changed) = found
    assert without == same and named != changed


@given(st.integers(), st.integers())
def test_a_key_tells_options_and_jobs_apart(a, b):
    one, other = records.key_of(experiment.label, a), records.key_of(fit, a)
    assert one != other
    assert (records.key_of(fit, b) == other) == (a == b)
    assert records.key_of([fit, experiment.label], a) not in (one, other)


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A copy of the code that keys are made of; calling it edits a file of it."""
    for name in reachable.PROJECT:
        shutil.copytree(reachable.ROOT / name, tmp_path / name)
    monkeypatch.setattr(reachable, "ROOT", tmp_path)

    def edit(path, old, new):
        text = (tmp_path / path).read_text()
        assert old in text
        (tmp_path / path).write_text(text.replace(old, new, 1))
        reachable.forget()

    reachable.forget()
    yield edit
    reachable.forget()


def planned():
    """The keys of all that `report --quick` measures, and of an experiment, by name."""
    found = {(job.name, key) for job in jobs.plan(None, True) for key in job.gives()}
    place = Place(None, Path("work"))
    return found | {(run.row, run.key) for run in read_only.EXPERIMENT.runs("scenes", place, [0])}


def test_prose_leaves_no_work_and_a_reached_constant_does(tree, tmp_path):
    before = planned()
    assert len(before) > 6
    tree("torch_impl/training/objectives.py", '"""', '"""Edited. ')
    scenes = "benchmarks/papers/expansionnet_v2/on_scenes.py"
    tree(scenes, "fitted = fit", "# edited\n    fitted = fit")
    (tmp_path / "benchmarks" / "report" / "added.py").write_text("NEW = 1\n")
    tree("benchmarks/report/html.py", "MARKS = ", "ADDED = 1\nMARKS = ")
    assert planned() == before
    tree("benchmarks/papers/lstm_readonly/read_only.py", "BEAM = 3", "BEAM = 4")
    tree("reference/expansion.py", "1e-9", "1e-8")
    changed = {name for name, _ in planned() - before}
    assert changed == {*read_only.ROWS, "verify every implementation", "list equations"}


def test_a_command_finds_no_work_after_prose_and_some_after_a_constant(tree, tmp_path, capsys):
    data = caption_files.write(tmp_path / "data")
    words = ["reproduce", "lstm_readonly", "--table", "words", "--data", str(data)]
    words += ["--out", str(tmp_path / "r.jsonl"), "--work", str(tmp_path / "work")]
    source = "benchmarks/papers/lstm_readonly/words.py"

    def measured():
        assert main(words) == 0
        return "2 of 2 runs are on record" not in capsys.readouterr().out

    assert measured()
    tree(source, "MIN_COUNT = ", "# said otherwise\nMIN_COUNT = ")
    tree("benchmarks/papers/lstm_readonly/read_only.py", "BEAM = 3", "BEAM = 4")
    assert not measured()
    tree(source, "MIN_COUNT = 4", "MIN_COUNT = 5")
    assert measured()
