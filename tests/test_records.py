"""Records: whole lines or none, validated, newest of a slot wins."""

import io
import json
import multiprocessing
import shlex
import subprocess
import sys
from contextlib import redirect_stderr
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import records
from benchmarks.errors import InputError
from benchmarks.kinds import Ablation, Timing
from tests.support.records import filled, record

PLACE = {"paper": "p", "table": "t", "row": "r", "status": "embedded", "key": "k"}


def example(row="a", seed=0, value=1.0, **fields):
    return record(Ablation, {"CIDEr-D": value}, row=row, seeds=[seed], **fields)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=5))
def test_what_is_appended_is_read_back(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("records") / "r.jsonl"
    written = [example(value=value) for value in values]
    records.append(written, path)
    records.append(written, path)
    assert records.read(path) == written + written


def test_what_two_did_at_once_is_kept_once(tmp_path):
    path = tmp_path / "r.jsonl"
    first, again, other = example(value=1), example(value=2), example(value=3, key="other")
    records.append([first, again], path, once=True)
    records.append([again, other], path, once=True)
    assert records.read(path) == [first, again, other]
    with path.open("a") as file:
        file.write('{"key": "cut')
    records.append([other], path, once=True)
    records.append([records.replace(other, key="last")], path, once=True)
    assert [json.loads(line)["key"] for line in path.read_text().splitlines()[4:]] == ["last"]


def test_a_record_s_command_names_no_folder_of_this_machine(monkeypatch, tmp_path):
    argv = ["captionbench", "report", "--data", str(tmp_path / "data"), "--out", "runs/a"]
    monkeypatch.setattr("sys.argv", argv)
    assert example().command == "captionbench report --data data --out runs/a"


def test_a_record_s_command_is_read_by_a_shell_as_it_was(monkeypatch):
    argv = ["captionbench", "reproduce", "--only", "attention | attention", "a; b", "$c 'd'"]
    monkeypatch.setattr("sys.argv", argv)
    assert shlex.split(example().command) == argv


def test_a_record_says_where_its_number_came_from():
    made = records.to_json(records.make(filled(Ablation), **PLACE, values={}))
    for name in ("commit", "clean", "device", "versions", "command", "time"):
        assert name in made
    assert made["device"]["cores"] and made["versions"]["torch"]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"status": "estimated"}, "status"),
        ({"values": {"CIDEr-D": float("nan")}}, "CIDEr-D"),
        ({"values": {"CIDEr-D": "131.4"}}, "values"),
        ({"values": {"CIDEr-D": True}}, "values"),
        ({"key": None}, "key"),
        ({"seeds": 1}, "seeds"),
        ({"n": "many"}, r"\$\.n"),
    ],
)
def test_a_field_of_another_type_is_refused_by_name(change, word):
    with pytest.raises(InputError, match=word):
        records.replace(example(), **change)


def test_a_time_on_a_cpu_names_its_threads():
    with pytest.raises(InputError, match="how many threads"):
        record(Timing, device=records.Device(kind="cpu", name="a CPU"))


@given(st.data())
def test_one_bad_line_costs_one_record_and_a_warning(tmp_path_factory, data):
    """A byte of one line is another, or its end is missing: the others are read."""
    path = tmp_path_factory.mktemp("records") / "r.jsonl"
    made = [example(row=row) for row in "abc"]
    lines = list(map(records.line, made))
    which = data.draw(st.integers(0, 2))
    at = data.draw(st.integers(0, len(lines[which]) - 2))
    if data.draw(st.booleans()):
        bad = lines[which][:at] + b"\n"
    else:
        byte = data.draw(st.integers(0, 255).filter(lambda b: b not in (lines[which][at], 10)))
        bad = lines[which][:at] + bytes([byte]) + lines[which][at + 1 :]
    lines[which] = bad
    path.write_bytes(b"".join(lines))
    with redirect_stderr(io.StringIO()) as said:
        assert records.read(path) == made[:which] + made[which + 1 :]
    assert f"warning: {path}: line {which + 1}: " in said.getvalue()
    with pytest.raises(InputError, match=f"line {which + 1}: "):
        records.parse(path.read_bytes(), str(path))


def test_an_edited_number_is_refused(tmp_path, capsys):
    path = tmp_path / "r.jsonl"
    records.append([example(value=131.4)], path)
    path.write_text(path.read_text().replace("131.4", "141.4"))
    assert records.read(path) == []
    assert "line 1: edited" in capsys.readouterr().err


def _append_many(path, row):
    for i in range(20):
        records.append([example(row=row, value=float(i))], Path(path))


def test_two_writers_at_once_lose_nothing(tmp_path):
    path = tmp_path / "r.jsonl"
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_append_many, args=(str(path), row)) for row in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    for row in "ab":
        values = [r.values["CIDEr-D"] for r in records.read(path) if r.what.row == row]
        assert values == [float(i) for i in range(20)]


def test_a_full_disk_leaves_the_old_lines(tmp_path, monkeypatch):
    path = tmp_path / "r.jsonl"
    records.append([example()], path)
    before = path.read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(records.os, "fsync", full)
        with pytest.raises(InputError, match="No space left"):
            records.append([example(row="b")], path)
    assert path.read_bytes() == before
    # a write that is cut short in the middle of a line, as by a limit on the size of files
    code = (
        "import resource, sys, signal; from pathlib import Path; from benchmarks import records\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "path = Path(sys.argv[1]); made = records.read(path)\n"
        "limit = path.stat().st_size + 50\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))\n"
        "records.append(made, path)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
    assert "cannot be written (File too large)" in done.stderr
    assert path.read_bytes() == before


def test_the_newest_of_a_slot_replaces_the_others():
    old, other_seed = example(value=1.0, time="2026-01-01T00:00:00+00:00"), example(seed=1)
    new = example(value=2.0, time="2026-02-01T00:00:00+00:00")
    kept = records.newest([new, other_seed, old])
    assert [r.values["CIDEr-D"] for r in kept if r.seeds == [0]] == [2.0]
    assert len(kept) == 2


@given(st.dictionaries(st.text(max_size=5), st.integers(), max_size=3))
def test_a_key_depends_on_content_and_not_on_order(parts):
    backwards = json.loads(json.dumps(dict(reversed(parts.items()))))
    assert records.key_of((), parts) == records.key_of((), backwards)
    assert records.key_of((), parts) != records.key_of((), {**parts, "new": 1})
