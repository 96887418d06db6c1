"""Records: whole lines or none, validated, newest of a slot wins."""

import json
import multiprocessing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import records
from benchmarks.errors import InputError


def example(row: str = "a", seed: int = 0, value: float = 1.0, kind: str = "ablation"):
    return records.make(
        kind,
        paper="expansionnet_v2",
        table="I",
        row=row,
        values={"CIDEr-D": value},
        status="embedded",
        key="k",
        seeds=[seed],
    )


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=5))
def test_what_is_appended_is_read_back(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("records") / "r.jsonl"
    written = [example(value=value) for value in values]
    records.append(written, path)
    records.append(written, path)
    assert records.read(path) == written + written


def test_what_two_did_at_once_is_kept_once(tmp_path):
    path = tmp_path / "r.jsonl"
    first, again, other = example(value=1), example(value=2), example(value=3) | {"key": "other"}
    records.append([first, again], path, once=True)
    records.append([again, other], path, once=True)
    assert records.read(path) == [first, again, other]
    with path.open("a") as file:
        file.write('{"key": "cut')
    records.append([other], path, once=True)
    records.append([other | {"key": "last"}], path, once=True)
    assert [json.loads(line)["key"] for line in path.read_text().splitlines()[4:]] == ["last"]


def test_a_record_s_command_names_no_folder_of_this_machine(monkeypatch, tmp_path):
    argv = ["captionbench", "report", "--data", str(tmp_path / "data"), "--out", "runs/a"]
    monkeypatch.setattr("sys.argv", argv)
    assert example()["command"] == "captionbench report --data data --out runs/a"


def test_a_record_says_where_its_number_came_from():
    record = example()
    for name in ("commit", "clean", "device", "versions", "command", "time"):
        assert name in record
    assert record["versions"]["torch"]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"schema": 2}, "schema"),
        ({"kind": "guess"}, "kind"),
        ({"status": "estimated"}, "status"),
        ({"what": {"paper": "x"}}, "what"),
        ({"values": {"CIDEr-D": float("nan")}}, "CIDEr-D"),
        ({"values": {"CIDEr-D": "131.4"}}, "CIDEr-D"),
        ({"values": {"CIDEr-D": True}}, "CIDEr-D"),
        ({"key": None}, "key"),
    ],
)
def test_a_foreign_record_is_refused_by_field(change, word):
    with pytest.raises(InputError, match=word):
        records.validate({**example(), **change}, "there")


def test_a_torn_line_is_named(tmp_path):
    path = tmp_path / "r.jsonl"
    records.append([example(), example()], path)
    path.write_text(path.read_text()[:-20])
    with pytest.raises(InputError, match="line 2"):
        records.read(path)


def _append_many(path: str, row: str) -> None:
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
        values = [r["values"]["CIDEr-D"] for r in records.read(path) if r["what"]["row"] == row]
        assert values == [float(i) for i in range(20)]


def test_a_full_disk_leaves_the_old_lines(tmp_path, monkeypatch):
    path = tmp_path / "r.jsonl"
    records.append([example()], path)
    before = path.read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(records.os, "fsync", full)
    with pytest.raises(InputError, match="No space left"):
        records.append([example(row="b")], path)
    assert path.read_bytes() == before


def test_the_newest_of_a_slot_replaces_the_others():
    old, other_seed, new = example(value=1.0), example(seed=1), example(value=2.0)
    old["time"], new["time"] = "2026-01-01T00:00:00+00:00", "2026-02-01T00:00:00+00:00"
    kept = records.newest([new, other_seed, old])
    assert [r["values"]["CIDEr-D"] for r in kept if r["seeds"] == [0]] == [2.0]
    assert len(kept) == 2


@given(st.dictionaries(st.text(max_size=5), st.integers(), max_size=3))
def test_a_key_depends_on_content_and_not_on_order(parts):
    backwards = json.loads(json.dumps(dict(reversed(parts.items()))))
    assert records.key_of((), parts) == records.key_of((), backwards)
    assert records.key_of((), parts) != records.key_of((), {**parts, "new": 1})
