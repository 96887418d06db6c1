"""Devices as data: every number with its source, and the CPU as its ceilings were measured."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import records
from benchmarks.cli.main import main
from benchmarks.errors import InputError
from benchmarks.files import read_json
from benchmarks.kinds import Counted, Prediction, Timing
from benchmarks.perf.cases import suites
from benchmarks.perf.cases.ceilings import COPY, OPERATIONS, PRODUCT
from benchmarks.perf.roofline import devices, prediction
from benchmarks.perf.roofline.devices import (
    FILE,
    DeviceSpec,
    find_spec,
    load_specs,
    spec_from_records,
)
from tests.support.records import filled, record

NAMES = ("K80", "T4", "V100", "A100", "H100", "H200", "L4", "RTX 4090")
names = st.sampled_from(NAMES)


def ceilings(threads=1, precision="float32", name="a CPU", time="2024-01-01", **values):
    case = suites.case("ceilings", ("device",), precision)
    return record(
        Counted,
        {COPY: 2e9, PRODUCT: 3e9, OPERATIONS: 5e5} | values,
        paper="all",
        table="speed",
        row=f"{case.row}: device",
        device=records.Device(kind="cpu", name=name, threads=threads),
        time=f"{time}T00:00:00+00:00",
        case=case.recorded(),
    )


def test_all_devices_are_described_with_a_source_and_a_year_each():
    assert set(load_specs()) == set(NAMES)
    for device in load_specs().values():
        assert len(device.source) > 20
        assert str(device.year) and 2010 < device.year < 2030
        assert "float32" in device.peak
        assert device.memory > 1e9
        assert "not measured" in device.launch_source
        # a peak of lower precision is no lower, and no product is slower than what it reads
        assert device.peak["float32"] == min(device.peak.values())
        assert device.peak["float32"] > device.bandwidth


@given(names)
def test_a_device_is_found_whatever_the_case_of_its_letters(name):
    assert find_spec(name.lower()) is find_spec(name.upper()) is load_specs()[name]


def test_a_process_has_its_share_of_a_board():
    (board,) = [d for d in read_json(FILE, "devices")["devices"] if d["gpus"] > 1]
    device = find_spec(board["name"])
    assert device.peak["float32"] * board["gpus"] == board["peak"]["float32"]
    assert device.bandwidth * board["gpus"] == board["bandwidth"]
    assert "one of the board's 2" in device.source


@given(st.sampled_from(("bandwidth", "launch", "float32")), st.floats(max_value=0))
def test_a_speed_that_is_not_above_0_is_refused_by_name(what, value):
    device = find_spec("A100")
    change = {"peak": {"float32": value}} if what == "float32" else {what: value}
    with pytest.raises(ValueError, match=what):
        replace(device, **change)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--device", "X9"], "expected one of cpu, K80, V100, T4, A100"),
        (
            ["--device", "T4", "--precision", "bfloat16"],
            "no peak in bfloat16, expected one of float32",
        ),
        (["--device", "A100", "--only", "nothing"], "no such case"),
        (["--device", "A100", "--only", "dynamic-memory", "--suite", "cpu"], "no case is left"),
        (["--threads", "0"], "--threads: 0"),
    ],
)
def test_bad_input_is_one_line_that_names_what_was_expected(capsys, words, said):
    assert main(["predict", *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error
    assert error.count("\n") == 1


def test_a_cpu_is_what_its_newest_ceilings_say():
    made = [
        ceilings(time="2024-01-02", **{COPY: 7e9}),
        ceilings(time="2024-01-01", **{COPY: 1e9}),
        ceilings(precision="bfloat16", time="2024-01-01", **{PRODUCT: 9e9}),
        ceilings(threads=2, time="2024-01-03", **{COPY: 8e9}),
        ceilings(name="another", time="2024-01-03", **{COPY: 9e9}),
    ]
    device = spec_from_records(made, "a CPU", 1)
    assert (device.bandwidth, device.launch) == (7e9, 2e-6)
    assert device.peak == {"float32": 3e9, "bfloat16": 9e9}
    assert [device.is_of(record) for record in made] == [True, True, True, False, False]
    assert spec_from_records(made, "a third", 1) is None


def test_ceilings_without_the_cost_of_an_operation_describe_nothing():
    old = ceilings()
    del old.values[OPERATIONS]
    assert spec_from_records([old], "a CPU", 1) is None


def test_a_prediction_is_never_a_measurement(tmp_path, capsys):
    path = tmp_path / "p.jsonl"
    words = ["predict", "--device", "a100", "--only", "static-layer forward", "--tiny", "--json"]
    assert main([*words, "--out", str(path)]) == 0
    made = json.loads(capsys.readouterr().out)
    kept = records.read(path)
    assert len(made) == len(kept) > 3
    assert {r.details.case.precision for r in kept} == set(suites.GPU_PRECISIONS)
    assert [each["measured"] for each in made] == [None] * len(made)
    assert [{**each, "measured": None} for each in map(records.to_json, kept)] == made
    for each in kept:
        assert (each.kind, each.status) == ("prediction", "predicted")
        assert each.device.kind == "description"
        assert DeviceSpec(**each.details.device) == find_spec("A100")
        assert "+compile" not in each.details.implementation
    with pytest.raises(InputError, match="status 'same data' of a prediction"):
        records.replace(kept[0], status="same data")
    assert main([*words, "--out", str(path)]) == 0
    assert records.read(path) == kept


@given(st.floats(1e-6, 1e3), st.floats(1e-6, 1e3))
def test_the_error_is_of_the_prediction_against_the_newest_measurement(predicted, seconds):
    device = spec_from_records([ceilings()], "a CPU", 1)
    of = {"row": "row", "implementation": "literal"}

    def timing(value, threads=1, time="2024"):
        here = records.Device(kind="cpu", name="a CPU", threads=threads)
        made = record(Timing, {"seconds": value}, device=here, time=f"{time}-01-01T00:00:00+00:00")
        return records.replace(made, details=filled(Timing, **of))

    details = filled(Prediction, **of, device=device.to_dict())
    made = record(Prediction, {"seconds": predicted}, status="predicted")
    made = records.replace(made, details=details)
    elsewhere = timing(5.0, threads=2)
    found = prediction.find_measurement(
        made, [timing(7.0, time="2023"), timing(seconds), elsewhere]
    )
    assert found.error_percent == pytest.approx(100 * (predicted - seconds) / seconds)
    assert prediction.find_measurement(made, [elsewhere]) is None


def test_the_cpu_at_hand_is_measured_only_where_no_record_is(monkeypatch):
    import torch

    asked = []

    def time_case(case, *_, **__):
        asked.append(case.subject.name)
        return [ceilings()]

    here = records.Device(kind="cpu", name="a CPU")
    monkeypatch.setattr(devices.case_records, "time_case", time_case)
    monkeypatch.setattr(devices.case_records, "describe", lambda *_: here)
    cpu = torch.device("cpu")
    assert devices.local_device(cpu, 1, [ceilings()]).bandwidth == 2e9
    assert asked == []
    assert devices.local_device(cpu, 1, []).bandwidth == 2e9
    assert asked == ["ceilings"]
