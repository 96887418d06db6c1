"""``captionbench track`` and ``history``: chains of ratios, whatever became of the revisions."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from benchmarks import records
from benchmarks.cli.main import main
from benchmarks.errors import InputError
from benchmarks.kinds import Comparison
from benchmarks.perf.compare.history import series
from benchmarks.report.sections.history import history
from tests.support.pages import report as report_of
from tests.support.records import altered, record
from tests.support.regressions import git, repository
from tests.support.tolerances import CHAINED

__all__ = ["repository"]

QUICK = ["--only", "reward", "--seconds", "0.05", "--processes", "2", "--smallest", "20"]
DEVICE = records.Device(kind="cpu", name="a CPU", cores=2, threads=1)
NAME = ("reward (tensors)", "a CPU, 1 thread")


def comparison(commit, against=None, ratio=None, *, at=0, dirty=False, verdict="same", **changes):
    """A record of a comparison, ``at`` so many seconds."""
    values = {"seconds": 0.001, "floor": 1.01}
    if ratio is not None:
        values |= {"ratio": ratio, "ratio low": 0.99 * ratio, "ratio high": 1.01 * ratio}
    details = {
        "benchmark": "reward",
        "implementation": "tensors",
        "revision": {"commit": commit, "dirty": dirty},
        "against": against and {"commit": against, "dirty": False},
        "verdict": verdict,
        **changes,
    }
    return record(
        Comparison,
        values,
        paper="all",
        table="revisions",
        row="reward: tensors",
        key=f"{commit}{against}{at}",
        device=DEVICE,
        time=f"2026-01-01T00:{at // 60:02}:{at % 60:02}+00:00",
        **details,
    )


def commits(count):
    return [f"{i:040x}" for i in range(count)]


@given(st.lists(st.floats(0.5, 2), max_size=8), st.randoms())
def test_a_chain_s_level_is_the_product_of_its_ratios(ratios, random):
    names = commits(len(ratios) + 1)
    made = [comparison(names[0], verdict="first")]
    for i, (ratio, (before, now)) in enumerate(zip(ratios, pairwise(names), strict=True)):
        made.append(comparison(now, before, ratio, at=i + 1))
    shuffled = random.sample(made, len(made))
    found = series(shuffled, names)[NAME]
    assert [entry.record.details.revision.commit for entry in found] == names
    assert [entry.number for entry in found] == list(range(1, len(names) + 1))
    assert [e.level for e in found] == pytest.approx(list(np.cumprod([1.0, *ratios])))
    assert {(entry.since, entry.reachable) for entry in found} == {(names[0][:9], True)}


def test_what_was_measured_against_nothing_known_begins_a_chain_of_its_own():
    a, b, c, d = commits(4)
    made = [
        comparison(a, verdict="first"),
        comparison(b, a, 2.0, at=1),
        comparison(d, c, 3.0, at=2),  # c's record is lost
    ]
    found = series(made, [a, b, c, d])[NAME]
    assert [(entry.level, entry.since) for entry in found] == [
        (1, a[:9]),
        (2, a[:9]),
        (1, d[:9]),
    ]
    assert found[2].ratio.value == 3


def test_the_order_is_git_s_and_marks_unreachable_commits():
    a, b, c, d = commits(4)
    made = [comparison(commit, at=i) for i, commit in enumerate((c, b, d, a))]
    found = series(made, [a, b, c])[NAME]
    assert [entry.label for entry in found] == [x[:9] for x in (d, a, b, c)]
    assert [entry.notes for entry in found] == ["not in history", "", "", ""]
    # without git nobody knows, and the order is that of time
    found = series(made)[NAME]
    assert [entry.label for entry in found] == [x[:9] for x in (c, b, d, a)]
    assert {(entry.reachable, entry.notes) for entry in found} == {(None, "")}


@given(st.lists(st.integers(0, 8), min_size=1, max_size=9, unique=True), st.integers(0, 8))
def test_an_unreachable_commit_is_before_all_that_was_measured_later(measured, reachable):
    names = commits(9)
    # several within one second: then they are as they were appended
    made = [comparison(names[c], at=i // 3) for i, c in enumerate(measured)]
    found = series(made, names[:reachable])
    listed = [names.index(e.record.details.revision.commit) for e in found[NAME]]
    known = [c for c in listed if c < reachable]
    assert known == sorted(known)
    assert [c for c in listed if c >= reachable] == [c for c in measured if c >= reachable]
    for i, commit in enumerate(measured):
        if reachable and commit >= reachable:
            assert {*measured[i + 1 :]} <= {*listed[listed.index(commit) + 1 :]}


def test_a_dirty_tree_is_another_revision_and_marked():
    (a,) = commits(1)
    made = [comparison(a), comparison(a, a, 0.5, at=1, dirty=True, verdict="slower")]
    clean, dirty = series(made, [a])[NAME]
    assert (clean.label, clean.notes) == (a[:9], "")
    assert (dirty.label, dirty.notes, dirty.level) == (f"{a[:9]}+", "dirty tree", 0.5)


def test_the_newest_record_of_a_revision_counts_and_tests_of_the_tester_do_not():
    a, b = commits(2)
    made = [
        comparison(a),
        comparison(b, a, 0.5, at=1, verdict="slower"),
        comparison(b, a, 0.9, at=2, verdict="not settled", grown={"operators": 2, "flops": -1}),
        comparison(b, b, 0.7, at=3),
        comparison(b, a, 0.7, at=4, planted=1.1),
    ]
    _, second = series(made, [a, b])[NAME]
    assert second.level == pytest.approx(0.9)
    assert second.verdict == "not settled, more operators"
    assert series(made[3:]) == {}


def test_a_revision_that_was_not_timed_breaks_no_chain():
    a, b, c = commits(3)
    wrong = altered(comparison(b, a, at=1, verdict="wrong"), values={})
    found = series([comparison(a), wrong, comparison(c, a, 1.5, at=2)], [a, b, c])[NAME]
    assert [entry.level for entry in found] == [1, None, 1.5]
    assert found[1].verdict == "wrong"


def test_devices_and_implementations_have_series_of_their_own():
    (a,) = commits(1)
    other = altered(comparison(a), device=structs.replace(DEVICE, threads=2))
    found = series([comparison(a), other, comparison(a, implementation="pycocoevalcap")])
    assert set(found) == {
        NAME,
        (NAME[0], "a CPU, 2 threads"),
        ("reward (pycocoevalcap)", NAME[1]),
    }


def test_track_measures_against_the_revision_tracked_before(repository, capsys, tmp_path):
    first = repository.commit(SECONDS=0.001)
    assert main(["track", *QUICK]) == 0
    second = repository.commit(SECONDS=0.002)
    assert main(["track", *QUICK]) == 1
    repository.write(SECONDS=0.001)
    assert main(["track", *QUICK]) == 0
    said = capsys.readouterr().out
    assert f"A: {first[:9]} ({first[:9]}); B: the working tree ({second[:9]})" in said
    made = records.read(tmp_path / "local" / "comparison.jsonl")
    assert [record.details.verdict for record in made] == ["first", "slower", "faster"]
    assert [record.details.revision.dirty for record in made] == [False, False, True]
    assert made[1].details.against.commit == first
    assert made[2].details.against.commit == second
    # the dirty tree is unavailable again: the next one is measured against the last commit
    repository.commit(SECONDS=0.0005)
    assert main(["track", *QUICK, "--json"]) == 0
    (last,) = json.loads(capsys.readouterr().out)
    assert last["details"]["against"]["commit"] == second
    (tmp_path / "local").rename(tmp_path / "published")
    assert main(["history", "--json"]) == 0
    ((of,),) = (json.loads(capsys.readouterr().out),)
    assert [entry["verdict"] for entry in of["revisions"]] == [
        "first",
        "slower",
        "faster",
        "faster",
    ]
    levels = [entry["level"] for entry in of["revisions"]]
    assert levels == pytest.approx([1, 0.5, 1, 2], **CHAINED)


def test_a_rebased_commit_that_git_forgot_is_passed_over(repository, capsys, tmp_path):
    repository.commit(SECONDS=0.001)
    assert main(["track", *QUICK]) == 0
    gone = repository.commit(SECONDS=0.002)
    assert main(["track", *QUICK]) == 1
    repository.commit("--amend", SECONDS=0.0015)
    git(repository.folder, "reflog", "expire", "--expire=now", "--all")
    git(repository.folder, "gc", "-q", "--prune=now")
    assert main(["track", *QUICK]) == 1
    made = records.read(tmp_path / "local" / "comparison.jsonl")
    assert made[2].details.against == made[0].details.revision
    capsys.readouterr()
    assert main(["history"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (line,) = (line for line in lines if gone[:9] in line)
    assert line.split()[-4:] == ["slower", "not", "in", "history"]
    assert lines.index(line) == 3


def test_history_prints_and_draws_each_series(repository, capsys, tmp_path):
    a, b = commits(2)
    path = tmp_path / "given.jsonl"
    records.append([comparison(a), comparison(b, a, 0.5, at=1, verdict="slower")], path)
    words = ["history", str(path), "--only", "rew", "--plot", str(tmp_path / "drawn")]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "reward (tensors) on a CPU, 1 thread" in said
    assert "0.500 [0.495, 0.505]" in said
    (drawn,) = (tmp_path / "drawn").iterdir()
    assert drawn.name == "reward-tensors-a-cpu-1-thread.svg"
    text = drawn.read_text()
    assert "slower" in text
    assert main(words) == 0
    assert drawn.read_text() == text


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"hash": "12", "kind": "compar', "line 1: cut off, or not a record"),
        (b'{"schema": 1}\n', "line 1: cut off, or not a record of schema 2"),
        (b"\xff\xfe\n", "not a file of records"),
        (b"", "given.jsonl: no records, expected some that `captionbench track` has appended"),
        (None, "no such file"),
    ],
)
def test_a_corrupt_or_foreign_file_is_named(repository, capsys, tmp_path, content, said):
    path = tmp_path / "given.jsonl"
    if content is not None:
        path.write_bytes(content)
    assert main(["history", str(path)]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1 + ("warning" in error)


def test_track_appends_nothing_to_a_file_that_it_cannot_read(repository, capsys, tmp_path):
    repository.commit(SECONDS=0.001)
    path = tmp_path / "given.jsonl"
    path.write_bytes(b"a song")
    assert main(["track", *QUICK, "--out", str(path)]) == 2
    assert "not a file of records" in capsys.readouterr().err
    assert path.read_bytes() == b"a song"
    assert main(["track", *QUICK, "--out", str(tmp_path)]) == 2
    assert "a folder, expected a file to write" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"benchmark": None}, r"details\.benchmark"),
        ({"verdict": 1}, r"details\.verdict"),
        ({"revision": None}, r"details\.revision"),
        ({"revision": {"commit": "x"}}, "dirty"),
        ({"against": {"commit": 1, "dirty": False}}, r"details\.against"),
    ],
)
def test_a_comparison_that_lacks_something_is_refused(change, said):
    with pytest.raises(InputError, match=said):
        altered(comparison("a"), **change)


def test_no_comparison_replaces_another_in_the_report():
    a, b = commits(2)
    made = [comparison(b, a, 0.5, at=i) for i in range(3)]
    assert records.newest(made) == made


def test_the_report_shows_comparisons_where_there_are_some():
    a, b = commits(2)
    assert history([]) == []
    tested = [comparison(a, a, 1.0, at=9 + i, planted=f) for i, f in enumerate((None, None, 1.1))]
    tested[2] = altered(tested[2], verdict="slower")
    made = [comparison(a), comparison(b, a, 0.5, at=1, verdict="slower"), *tested]
    pages = report_of(made)
    page = pages["README.md"]
    assert "## Revisions" in page
    rows = pages["tables/history.md"].splitlines()[4:]
    assert [row.split(" | ")[:2] for row in rows] == [["| reward (tensors)", "a CPU, 1 thread"]] * 2
    assert "slower" in rows[1]
    (table,) = (text for name, text in pages.items() if name.endswith("history-tests.md"))
    rows = [line for line in table.splitlines() if line.startswith("| reward")]
    assert [[cell.strip() for cell in row.split("|")[3:9]] for row in rows] == [
        ["0%", "2", "0", "0", "2", "0"],
        ["10%", "1", "1", "0", "0", "0"],
    ]
    assert report_of(made) == pages
    assert "## Revisions" not in report_of([])["README.md"]
