"""Counts are held to a committed baseline; pytest-benchmark records them beside its times."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import records
from benchmarks.cli import counts as command
from benchmarks.cli.main import main
from benchmarks.perf import counts
from benchmarks.perf.cases.case import Work

names = st.sampled_from(counts.COMPARED)
tables = st.dictionaries(
    st.text("abc", min_size=1, max_size=2),
    st.fixed_dictionaries(
        {"flops": st.integers(0, 9), "operators": st.integers(0, 9)},
        optional={"saved bytes": st.integers(0, 9)},
    ),
    max_size=4,
)


@pytest.fixture(scope="module")
def counted():
    torch.manual_seed(0)
    return counts.counted()


def test_operations_and_saved_bytes_are_the_baseline_s(counted):
    baseline = json.loads(counts.BASELINE.read_text())
    changed = counts.differences(counted, baseline)
    assert not changed, "if intended: captionbench counts --renew, and say why in the commit"
    assert sum("saved bytes" in held for held in baseline.values()) >= 14


@given(tables, tables)
def test_every_held_difference_is_named_and_no_other(found, baseline):
    lines = counts.differences(found, counts.compared(baseline))
    assert not counts.differences(found, counts.compared(found))
    expected = sum(row not in found for row in baseline)
    for row, of in counts.compared(found).items():
        for name, value in of.items():
            before = baseline.get(row, {}).get(name)
            if before == value:
                continue
            expected += 1
            word = "not in the baseline" if before is None else "rose" if value > before else "fell"
            assert any(line.startswith(f"{row}: {name} ") and word in line for line in lines)
    assert len(lines) == expected


def test_more_work_than_the_baseline_s_fails_and_renewing_says_so(tmp_path, monkeypatch, capsys):
    case = next(c for c in counts.CASES if c.subject.name == "static-layer forward+backward")
    baseline = tmp_path / "counts.json"
    monkeypatch.setattr(counts, "CASES", [case])
    for module in (counts, command):
        monkeypatch.setattr(module, "BASELINE", baseline)
    assert main(["counts"]) == 2
    assert "no such file, expected counts (captionbench counts --renew)" in capsys.readouterr().err
    assert main(["counts", "--renew"]) == 0
    kept = json.loads(baseline.read_text())
    assert main(["counts", "--json"]) == 0
    assert counts.compared(json.loads(capsys.readouterr().out.split("json\n")[-1])) == kept

    def twice(*arguments) -> Work:
        work = case.subject.make(*arguments)
        return replace(work, call=lambda: (work.call(), work.call()))

    monkeypatch.setattr(counts, "CASES", [replace(case, subject=replace(case.subject, make=twice))])
    assert main(["counts"]) == 1
    out = capsys.readouterr().out
    row = f"{case.row}: literal"
    flops = kept[row]["flops"]
    assert f"{row}: flops rose: {flops} to {2 * flops}" in out
    assert "captionbench counts --renew" in out
    assert json.loads(baseline.read_text()) == kept


@pytest.mark.parametrize("case", counts.CASES, ids=lambda case: case.row)
def test_a_second_count_is_the_first(case, counted):
    name = case.implementations[-1]
    first = counted[f"{case.row}: {name}"]
    torch.manual_seed(1)
    second = counts.count(case, name)
    assert counts.compared({"": first}) == counts.compared({"": second})
    assert first["operators"] == second["operators"]


RUNS = """
import json, sys, pytest
short = ["benchmarks/perf/pytest_benchmark", "-k", "static-layer-forward-",
         "-p", "no:cacheprovider", "--benchmark-max-time=0.01", "--benchmark-min-rounds=3"]
sys.exit(any(pytest.main([*short, *words]) for words in json.loads(sys.argv[1])))
"""


def test_pytest_benchmark_keeps_counts_beside_times_and_compares(tmp_path):
    written, storage = tmp_path / "times.json", f"--benchmark-storage={tmp_path}"
    words = [
        [storage, "--benchmark-save=before", f"--benchmark-json={written}"],
        [storage, "--benchmark-compare"],
    ]
    done = subprocess.run(
        [sys.executable, "-c", RUNS, json.dumps(words)],
        cwd=records.ROOT,
        env={name: v for name, v in os.environ.items() if not name.startswith("PYTEST_")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    made = json.loads(written.read_text())["benchmarks"]
    baseline = json.loads(counts.BASELINE.read_text())
    found = {f"{one['group']}: {one['params']['implementation']}": one for one in made}
    assert len(found) == len(made) == 2
    for row, one in found.items():
        assert counts.compared({row: one["extra_info"]})[row] == baseline[row]
        assert one["extra_info"]["operators"] > 0
        assert one["stats"]["median"] > 0
    assert done.stdout.count("(0001_before)") == done.stdout.count("(NOW)") == 2
