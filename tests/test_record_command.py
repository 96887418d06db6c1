"""``captionbench record`` and ``import``: one file, whole or refused, that names nobody."""

from __future__ import annotations

import fcntl
import gzip
import itertools
import json
import socket
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from benchmarks import records
from benchmarks.cli import publish
from benchmarks.cli import record as command
from benchmarks.cli.main import main
from benchmarks.errors import InputError
from benchmarks.kinds import Equations, Measured, Verified
from benchmarks.perf import case_records, device_record, session, threads
from benchmarks.perf.cases import suites
from benchmarks.perf.cases.suites import SUBJECTS
from benchmarks.perf.roofline.devices import find_spec
from benchmarks.perf.scaling.ladders import LADDERS
from benchmarks.perf.targets import TARGETS, is_needed
from benchmarks.verify.search import MANY
from tests.support.records import CPU
from tests.support.records import record as a_record
from tests.support.second_device import SECOND, second_device
from tests.support.speed import STATIC, counted_elsewhere, forbidden, record

__all__ = ["counted_elsewhere"]

ROW = {
    "operator": "static_expansion", "equations": {}, "numbers": "2", "what": "output",
    "implementation": "literal", "dtype": "float32", "device": "cpu", "cases": 3, "worst": 0.0,
    "bound": 1.0,
}  # fmt: skip
QUICK = ["--seconds", "0.001", "--threads", "1"]
ASKED = ("ceilings", "reward", "xe-step")
"""Subjects of targets at the sizes here."""
STAGES = ("targets", "timing", "memory", "scaling", "grid")


def example(implementation: str = "literal", **values: float):
    """A record that the report can show."""
    return record(STATIC, implementation, values)


def small(subject: str, *implementations: str):
    case = suites.case(subject, implementations)
    return replace(case, sizes=case.sizes.tiny())


def verifies(monkeypatch, *, passed: bool, **about: str) -> None:
    row = Verified(**{**ROW, "passed": passed, **about})

    def rows(device, examples, operators, **_):
        return (structs.replace(row, operator=name) for name in operators)

    monkeypatch.setattr(case_records.table, "rows", rows)


@pytest.fixture
def device(monkeypatch, counted_elsewhere):
    """A device that is quickly verified and timed: a case a stage."""
    verifies(monkeypatch, passed=True)
    layer = small("dynamic-layer forward", "literal", "factored")
    short = {
        "cpu": [layer, suites.case("reward", ("pycocoevalcap", "tensors"), candidates=3)],
        "memory": [small("dynamic-memory", "factored")],
        "grid": [small("dynamic-layer forward+backward", "factored")],
    }
    ladder = replace(LADDERS["dynamic-vectors"], sizes=(1, 2, 4), implementations=("factored",))
    monkeypatch.setattr(device_record, "LADDERS", {ladder.name: ladder})
    monkeypatch.setattr(session, "local_device", lambda *_: find_spec("A100"))
    monkeypatch.setattr(device_record, "is_needed", lambda case: case.subject.name in ASKED)
    monkeypatch.setattr(
        suites, "SUITES", {name: lambda seed, of=of: of for name, of in short.items()}
    )


def recorded(folder: Path, *words: str, code: int = 0) -> Path:
    """The packed file of a recording."""
    assert main(["record", "--suite", "cpu", "--out", str(folder), *QUICK, *words]) == code
    (packed,) = folder.glob("*.captionbench.jsonl.gz")
    return packed


@pytest.fixture
def published(tmp_path, monkeypatch):
    """The folder that `import` publishes into."""
    folder = tmp_path / "reports" / "records"
    monkeypatch.setattr(publish, "PUBLISHED", folder)
    monkeypatch.setattr(publish, "REPORTS", folder.parent)
    return folder


def test_what_is_recorded_is_published_once(device, tmp_path, published, capsys, monkeypatch):
    packed = recorded(tmp_path / "d", "--threads", "1", "all")
    made = device_record.read(packed)
    assert made == records.newest(records.read(tmp_path / "d" / "records.jsonl"))
    numbers = {r.device.threads for r in made if isinstance(r.details, Measured)}
    assert numbers == {1, threads.usable()}
    assert {r.details.case.subject for r in made if isinstance(r.details, Measured)} == {
        case.subject.name for suite in suites.SUITES.values() for case in suite(0)
    }
    manifest = json.loads(gzip.decompress(packed.read_bytes()).split(b"\n")[0])
    assert manifest["stages"] == dict.fromkeys(STAGES, True)
    assert manifest["records"] == len(made)
    capsys.readouterr()
    assert main(["import", str(packed), str(tmp_path / "d" / "records.jsonl")]) == 0
    n = len(made)
    assert f"{n} of {2 * n} records published, {n} were already" in capsys.readouterr().out
    assert sorted(map(str, records.load(published))) == sorted(map(str, made))
    assert "dynamic-layer forward" in (published.parent / "speed.md").read_text()
    monkeypatch.setattr(publish.build, "pages", lambda made: {})  # they are those above
    assert main(["import", str(packed)]) == 0
    assert f"0 of {n} records published, {n} were already" in capsys.readouterr().out
    assert len(records.load(published)) == n


def test_a_recording_resumes_where_it_ended(device, tmp_path, monkeypatch, capsys):
    packed = recorded(tmp_path, "--minutes", "1e-9")
    assert {r.kind for r in device_record.read(packed)} == {"verification"}
    printed = capsys.readouterr().out
    assert f"incomplete: 5 cases not done ({', '.join(STAGES)}); run the same" in printed
    assert "the file to send" not in printed
    recorded(tmp_path)
    assert "the file to send" in capsys.readouterr().out
    whole = device_record.read(packed)
    assert len(whole) > 5
    for measured in ("time_case", "verify"):
        monkeypatch.setattr(case_records, measured, forbidden(getattr(case_records, measured)))
    capsys.readouterr()
    assert device_record.read(recorded(tmp_path, "--json")) == whole
    said = json.loads(capsys.readouterr().out)
    assert (said["records"], said["left"], said["failed"]) == (len(whole), 0, {})


def test_nothing_is_timed_of_what_is_not_right(device, tmp_path, monkeypatch, capsys):
    verifies(monkeypatch, passed=False)
    assert main(["record", "--suite", "cpu", "--out", str(tmp_path), *QUICK]) == 1
    assert "nothing is timed" in capsys.readouterr().err
    assert list(tmp_path.glob("*.gz")) == []
    assert {r.kind for r in records.read(tmp_path / "records.jsonl")} == {"verification"}


def test_what_a_device_cannot_do_is_named_and_the_rest_is_measured(device, tmp_path, monkeypatch):
    def fails(*_):
        raise torch.OutOfMemoryError("no memory for this\nat all")

    case = small("encoder forward", "literal")
    case = replace(case, subject=replace(case.subject, make=fails))
    monkeypatch.setitem(suites.SUITES, "memory", lambda seed: [case])
    packed = recorded(tmp_path)
    manifest = json.loads(gzip.decompress(packed.read_bytes()).split(b"\n")[0])
    assert manifest["failed"] == {case.row: "OutOfMemoryError: no memory for this"}
    subjects = {
        r.details.case.subject for r in records.of_kind(device_record.read(packed), Measured)
    }
    assert {"reward", "dynamic-layer forward+backward"} <= subjects


def test_the_file_names_neither_user_nor_host_nor_folder(device, tmp_path, monkeypatch):
    user, host = "beatrice", "workstation-7"
    home = tmp_path / "people" / user
    monkeypatch.setattr(Path, "home", lambda: home)
    monkeypatch.setattr(records.getpass, "getuser", lambda: user)
    monkeypatch.setattr(socket, "gethostname", lambda: host)

    def fails(*_):
        raise RuntimeError(f"{host}: {home}/lib/cuda.so of {user} (see ~/x/y.txt, /opt/z/w.h)")

    layer = small("dynamic-layer forward", "literal", "factored")
    made = SUBJECTS["dynamic-layer forward"].make
    broken = replace(layer.subject, make=lambda *a: made(*a) if a[1] == "literal" else fails())
    monkeypatch.setitem(suites.SUITES, "cpu", lambda seed: [replace(layer, subject=broken)])
    folder = home / "out"
    words = ["captionbench", "record", "--out", str(folder), f"--x={home}", f"../{user}/y", user]
    monkeypatch.setattr("sys.argv", words)
    text = gzip.decompress(recorded(folder).read_bytes()).decode()
    for personal in (user, host, str(tmp_path), "people", "/opt", "~/"):
        assert personal not in text
    assert "captionbench record --out out '--x=~' y user" in text
    assert "RuntimeError: host: cuda.so of user (see y.txt, w.h)" in text


def packed(**changes) -> bytes:
    options = {"suite": "cpu", "device": CPU, "stages": {}, "failed": {}, "tiny": False}
    return device_record.pack([example("a"), example("b")], **{**options, **changes})


@given(st.floats(0, 1, exclude_max=True), st.integers(0, 7))
def test_a_changed_file_is_refused_or_gives_the_same_records(tmp_path_factory, where, bit):
    whole = packed()
    path = tmp_path_factory.mktemp("packed") / "x.captionbench.jsonl.gz"
    path.write_bytes(whole)
    expected = device_record.read(path)
    at = int(where * len(whole))
    changed = bytearray(whole)
    changed[at] ^= 1 << bit
    for damaged in (whole[:at], bytes(changed), whole + bytes(changed[at:])):
        path.write_bytes(damaged)
        try:
            assert device_record.read(path) == expected
        except InputError as error:
            assert str(error).startswith(str(path))
            assert "\n" not in str(error)


def forged(**changes) -> bytes:
    """A file whose manifest says something else."""
    first, _, lines = gzip.decompress(packed()).partition(b"\n")
    manifest = {**json.loads(first), **changes}
    manifest = {name: value for name, value in manifest.items() if value is not None}
    return gzip.compress(json.dumps(manifest).encode() + b"\n" + lines)


def changed(**changes) -> bytes:
    """A line with its hash, of which other fields are so."""
    content = {**records.to_json(example()), **changes}
    return records.seal(json.dumps(content, separators=(",", ":")).encode())


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (lambda: packed()[:-9], "cut off or damaged"),
        (lambda: forged(sha256="0" * 64), "SHA-256 differs"),
        (lambda: forged(records=3), "2 records, its manifest says 3"),
        (lambda: forged(schema=2), "no manifest (Invalid enum value 2 - at `$.schema`)"),
        (lambda: forged(captionbench="a song"), "no manifest (Invalid enum value 'a song'"),
        (lambda: forged(sha256=None), "no manifest (Object missing required field `sha256`"),
        (lambda: packed(tiny=True), "made with --tiny"),
        (lambda: gzip.compress(b"hello\n"), "no manifest"),
        (lambda: gzip.compress(b""), "no manifest"),
        (lambda: gzip.compress(b"[" * 10**5), "no manifest"),
        (lambda: b"\x1f\x8b", "cut off or damaged"),
        (lambda: b"\x89PNG\xff", "line 1: cut off, or not a record"),
        (lambda: b"", "is empty, expected records"),
        (lambda: b"hello", "line 1: cut off, or not a record"),
        (lambda: b"[1]\n", "line 1: cut off, or not a record"),
        (lambda: b'{"schema": 1}\n', "line 1: cut off, or not a record of schema 2"),
        (lambda: records.line(example())[:-5], "line 1: edited, cut off or damaged"),
        (lambda: changed(schema=3), "line 1: not a record (Invalid enum value 3 - at `$.schema`)"),
        (lambda: changed(device={"name": "x"}), "missing required field `kind` - at `$.device`"),
        (lambda: changed(seeds=1), "Expected `array`, got `int` - at `$.seeds`"),
        (lambda: changed(colour="red"), "unknown field `colour`"),
        (lambda: changed(time="yesterday"), "time is 'yesterday', expected one of ISO 8601"),
        (lambda: changed(time="2026-01-01T00:00:00"), "expected one of ISO 8601 with its zone"),
        (lambda: changed(time="2999-01-01T00:00:00+00:00"), "expected none of the future"),
        (
            lambda: records.line(a_record(Equations, paper="resnet")),
            "no paper 'resnet', expected one of arnet, ",
        ),
    ],
)
def test_of_a_bad_file_nothing_is_published(data, said, tmp_path, published, capsys):
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad"
    records.append([example()], good)
    bad.write_bytes(data())
    assert main(["import", str(good), str(bad)]) == 2
    error = capsys.readouterr().err
    assert f"{bad}: " in error
    assert said in error
    assert error.count("\n") == 1
    written = (path.suffix for path in published.parent.rglob("*"))
    assert not {".jsonl", ".md"} & set(written)


def test_two_imports_at_once_publish_once(tmp_path, published, monkeypatch, capsys):
    path, made = tmp_path / "r.jsonl", example()
    records.append([made], path)
    started, pages = threading.Barrier(2), publish.build.pages

    def slow(records):
        with suppress(threading.BrokenBarrierError):
            started.wait(timeout=1)  # that the other comes this far too, if it can
        return pages(records)

    monkeypatch.setattr(publish.build, "pages", slow)
    both = [threading.Thread(target=main, args=(["import", str(path)],)) for _ in range(2)]
    for each in both:
        each.start()
    for each in both:
        each.join()
    assert records.load(published) == [made]
    said = capsys.readouterr().out
    assert "1 of 1 records published" in said and "0 of 1 records published, 1 were" in said


def test_too_large_a_file_is_not_unpacked(tmp_path, monkeypatch):
    path = tmp_path / "x.gz"
    path.write_bytes(packed())
    monkeypatch.setattr(device_record, "LARGEST", 100)
    with pytest.raises(InputError, match="over 100 bytes unpacked"):
        device_record.read(path)


def test_a_missing_file_is_named(tmp_path, published, capsys):
    assert main(["import", str(tmp_path / "none.gz")]) == 2
    assert "none.gz: no such file, expected records" in capsys.readouterr().err


def test_of_a_slot_the_newest_is_published(tmp_path, published, capsys):
    old, new = example(growth=1.0), example(growth=2.0)
    old = records.replace(old, time="2026-01-01T00:00:00+00:00")
    path = tmp_path / "r.jsonl"
    records.append([new, old], path)
    assert main(["import", str(path)]) == 0
    assert "1 of 2 records published, 0 were already, 1 are replaced" in capsys.readouterr().out
    assert records.load(published) == [new]
    assert main(["import", "--json", str(path)]) == 0
    assert json.loads(capsys.readouterr().out) == {"published": 1, "already": 1, "replaced": 0}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--suite", "gpu", "--device", "cpu"], "--device cpu: expected one of kind cuda"),
        (["--suite", "gpu", "--device", "cuda:99"], "--device cuda:99: PyTorch cannot use it"),
        (["--suite", "cpu", "--device", "meta"], "--device meta: "),
        (["--suite", "cpu", "--seconds", "nan"], "--seconds: nan, expected a finite"),
        (["--suite", "cpu", "--no-flush"], "--no-flush: makes no difference on a CPU"),
        (["--suite", "cpu", "--threads", "none"], "--threads: none, expected a whole number"),
    ],
)
def test_what_cannot_be_recorded_is_one_line(words, said, tmp_path, capsys):
    assert main(["record", "--out", str(tmp_path / "d"), *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"captionbench: error: {said}")
    assert error.count("\n") == 1
    assert not (tmp_path / "d").exists()


def test_a_suite_s_own_device_that_is_not_there_is_no_option_of_the_user_s(
    tmp_path, capsys, monkeypatch
):
    def zeros(*_, device):
        raise RuntimeError(f"no {device}\nat all")

    monkeypatch.setattr(torch, "zeros", zeros)
    assert main(["record", "--out", str(tmp_path / "d"), "--suite", "gpu"]) == 2
    said = "captionbench: error: --suite gpu: PyTorch cannot use cuda (no cuda)\n"
    assert capsys.readouterr().err == said


def test_a_place_that_cannot_be_is_named(device, tmp_path, capsys):
    file = tmp_path / "file"
    file.write_text("")
    assert main(["record", "--suite", "cpu", "--out", str(file)]) == 2
    assert f"{file}: expected a folder that can be written" in capsys.readouterr().err
    folder = tmp_path / "d"
    folder.mkdir()
    with (folder / f".{command.RECORDS}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert main(["record", "--suite", "cpu", "--out", str(folder)]) == 2
    assert (
        f"{folder / command.RECORDS}: in use, expected it to end first" in capsys.readouterr().err
    )
    recorded(folder)


@pytest.mark.parametrize("suite", command.DEVICES)
def test_every_case_of_a_suite_is_in_one_stage_and_those_of_targets_in_the_first(suite):
    cuda = torch.device({"cpu": "cpu", "gpu": "cuda"}[suite])
    timed = []
    measuring = SimpleNamespace(time=timed.append, scale=lambda *_, **__: None)
    for stage in device_record.stages(suite, cuda, tiny=False):
        stage.run(measuring)
    targets, rest, *_ = timed
    assert dict.fromkeys([*targets, *rest]) == dict.fromkeys(
        sorted(suites.SUITES[suite](0), key=lambda case: not is_needed(case))
    )
    rows = {case.row for case in targets}
    for target in TARGETS:
        if target.device == cuda.type:
            assert any(target.is_of(case.recorded()) for case in targets)
    assert not rows & {case.row for case in rest}


def test_a_kernel_that_is_wrong_is_left_out_and_all_else_is_timed(device, tmp_path, monkeypatch):
    verifies(monkeypatch, passed=False, implementation="fused")
    case = small("static-layer forward", "literal", "fused")
    monkeypatch.setitem(suites.SUITES, "cpu", lambda seed: [case])
    made = device_record.read(recorded(tmp_path, code=1))
    timings = [r for r in records.of_kind(made, Measured) if r.details.row == case.row]
    assert [r.details.implementation for r in timings] == ["literal"]


FEATURES = 4


def toy(place):
    """Two runs of one row; a first try of the second fails."""
    made = place.work / "tried"

    def measure(run):
        if run.seed == 1 and not made.exists():
            made.parent.mkdir(parents=True, exist_ok=True)
            made.touch()
            raise torch.OutOfMemoryError("no memory")
        x = torch.ones(FEATURES, device=place.device).sum()
        return [
            records.replace(a_record(Equations, paper="arnet"), key=run.key, values={"x": x.item()})
        ]

    return measure


def test_a_lease_of_a_gpu_is_used_from_end_to_end_and_resumes(
    device, tmp_path, monkeypatch, capsys
):
    """On the second device: its stages in order, what is left and what failed done by the next."""
    runs = []

    def plan(experiments, form, place, **options):
        assert (form, options) == (command.FORM, {"by_row": True})
        measure = toy(place)
        for seed in range(2):
            run = SimpleNamespace(seed=seed, title=f"seed {seed}", key=f"run {seed}")
            run.make = lambda run=run: runs.append(run.key) or measure(run)
            yield run

    monkeypatch.setattr(command.queue, "plan", lambda *a, **o: list(plan(*a, **o)))
    # a tensor of the second device has no storage of its own that could be counted
    taken = {"flops": 8, "operators": 1, "peak bytes": 8}
    saved = itertools.count()
    monkeypatch.setattr(
        case_records.resources, "count", lambda *_: {**taken, "saved bytes": next(saved)}
    )
    monkeypatch.setitem(command.DEVICES, "gpu", SECOND.type)
    suite = [
        small("ceilings", "device"),
        small("xe-step", "literal"),
        small("static-layer forward+backward", "literal", "factored"),
    ]
    monkeypatch.setitem(suites.SUITES, "gpu", lambda seed: suite)
    words = [
        "record",
        "--suite",
        "gpu",
        "--features",
        "f",
        "--out",
        str(tmp_path),
        "--json",
        *QUICK,
    ]

    def lease(*more):
        capsys.readouterr()
        with second_device():
            assert main([*words, *more]) == 0
        return json.loads(capsys.readouterr().out)

    first = lease("--minutes", "1e-9")
    order = ["targets", "training", *STAGES[1:]]
    assert list(first["stages"]) == order and not any(first["stages"].values())
    assert not runs
    second = lease()
    assert second["left"] == 0 and second["failed"] == {"seed 1": "OutOfMemoryError: no memory"}
    third = lease()
    assert runs == ["run 0", "run 1", "run 1"]  # what has a record is not done again
    assert third["failed"] == {} and list(third["stages"]) == order
    made = device_record.read(Path(third["file"]))
    assert made == records.newest(records.read(tmp_path / command.RECORDS))
    timed = {r.details.case.subject for r in records.of_kind(made, Measured)}
    assert {case.subject.name for case in suite} <= timed
    assert sum(r.key.startswith("run ") for r in made) >= 1


def test_a_gpu_s_kernels_run_on_all_large_sizes_before_anything_is_timed(monkeypatch):
    described, asked = case_records.describe(torch.device("cpu"), 1), {}

    def verify(device, examples, operators, *, processes):
        asked[device.type] = asked.get(device.type, {}) | dict.fromkeys(operators, examples)
        return iter(())

    ours = session.implementations("cpu")
    monkeypatch.setattr(session, "implementations", lambda device: ours)
    monkeypatch.setattr(case_records, "verify", verify)
    monkeypatch.setattr(case_records, "describe", lambda *_: described)
    for device in ("cpu", "cuda"):
        session.Session(torch.device(device), None).verify()
    names = {one.operator for one in ours}
    assert set(asked["cpu"]) == set(asked["cuda"]) == names
    raised = {name for name in names if asked["cuda"][name] > asked["cpu"][name]}
    assert raised == {"static_expansion", "dynamic_expansion"}
    assert all(asked["cuda"][name] >= MANY for name in raised)
