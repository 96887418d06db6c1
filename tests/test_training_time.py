"""Training time: steps follow from the print, gains from steps and the time of a step."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import papers, records
from benchmarks.cli import tables
from benchmarks.cli.main import main
from benchmarks.kinds import Timing
from benchmarks.perf.cases.case import Case, Sizes
from benchmarks.perf.cases.suites import SUBJECTS
from benchmarks.perf.kernels import Kernel, dispatched
from benchmarks.perf.roofline import training_time
from benchmarks.perf.roofline.devices import find_spec
from benchmarks.perf.roofline.training_time import (
    ScheduleStage,
    at_batch,
    make_records,
)
from benchmarks.records import Device
from tests.support.pages import report as report_of
from tests.support.records import filled, record
from tests.support.tolerances import SCHEDULED, SCHEDULED_TWICE

DATA = training_time.schedules().data
PAPERS = training_time.tables()
counts = st.integers(1, 500)


@pytest.fixture
def steps(monkeypatch):
    """Steps of one kernel, that is as heavy as ``flops`` says of the batch."""

    def of(flops):
        def probe(objective, model, batch):
            return batch, [Kernel("mm", flops(batch), 0)]

        monkeypatch.setattr(training_time, "_probe", probe)
        training_time._kernels.cache_clear()

    yield of
    training_time._kernels.cache_clear()


def launch_bound(batch):
    return 1.0


def compute_bound(batch):
    return 1e15 * batch


def by_row(made):
    return {record.what.row: record.values for record in made}


@given(counts, counts, st.sampled_from(("xe", "sc")), st.none() | st.integers(1, 10**9))
def test_steps_are_epochs_of_whole_and_one_last_batch(epochs, batch, objective, examples):
    steps = ScheduleStage(objective, epochs, batch, examples).steps(DATA)
    each = examples or DATA.images * (DATA.captions_per_image if objective == "xe" else 1)
    assert steps % epochs == 0
    assert 0 <= steps // epochs * batch - each < batch


@given(
    st.lists(st.builds(ScheduleStage, st.just("xe"), counts, counts), max_size=4),
    st.floats(0.01, 10),
)
def test_training_is_as_long_as_its_steps(stages, seconds):
    total, listed = training_time.training_seconds(stages, DATA, lambda _: (seconds, "predicted"))
    assert total == pytest.approx(seconds * sum(stage["steps"] for stage in listed))
    twice, _ = training_time.training_seconds(stages, DATA, lambda _: (2 * seconds, ""))
    assert twice == pytest.approx(2 * total)


def test_kernels_at_two_batches_give_those_at_any_other():
    def at(batch):
        case = Case(SUBJECTS["xe-step"], ("literal",), replace(Sizes().tiny(), batch=batch))
        return batch, dispatched(case, "literal", cuda=True, warm_up=False)

    small, large, (batch, other) = at(2), at(4), at(7)
    given_by_two = at_batch(small, large, batch)
    assert [k.name for k in given_by_two] == [k.name for k in other]
    for ours, theirs in zip(given_by_two, other, strict=True):
        assert (ours.flops, ours.bytes) == (theirs.flops, theirs.bytes)
    with pytest.raises(ValueError, match="other operations"):
        at_batch(small, (4, large[1][1:]), 3)


def test_gains_of_steps_that_only_launch_are_those_of_their_numbers(steps):
    steps(launch_bound)
    found = by_row(make_records("expansionnet_v1"))
    captions = DATA.images * DATA.captions_per_image
    ten, many = math.ceil(captions / 10), math.ceil(captions / 48)
    one = found["Cross Entropy, 1 GPU"]
    assert one["gain"] == pytest.approx(30 * ten / (12 * many + ten))
    assert found["Cross Entropy, 4 GPUs"] == one  # a smaller share of a batch launches as much
    images = DATA.images
    fewer = 30 * math.ceil(images / 10) / (35 * math.ceil(images / 32))
    assert found["SCST Training, 4 GPUs"]["gain"] == pytest.approx(fewer)


def test_gains_of_steps_that_only_compute_are_those_of_their_epochs(steps):
    steps(compute_bound)
    found = by_row(make_records("expansionnet_v1"))
    assert found["Cross Entropy, 1 GPU"]["gain"] == pytest.approx(30 / 13, **SCHEDULED)
    assert found["Cross Entropy, 4 GPUs"]["gain"] == pytest.approx(30 / (12 / 4 + 1), **SCHEDULED)
    assert found["SCST Training, 4 GPUs"]["gain"] == pytest.approx(4 * 30 / 35, **SCHEDULED_TWICE)


def test_an_end_to_end_step_has_its_backbone_beside_it(steps):
    steps(launch_bound)
    (record,) = [r for r in make_records("expansionnet_v2") if r.what.row == "ExpansionNet v2"]
    a, b, c, d = record.details.stages
    device, backbone = find_spec("A100"), training_time.schedules().backbone
    a_image = 2 * backbone.passes * backbone.macs / device.peak["float32"]
    assert a.step_s == c.step_s == device.launch
    assert b.step_s == pytest.approx(device.launch + 48 * a_image)
    assert d.step_s == pytest.approx(device.launch + 20 * a_image)
    assert (a.source, b.source) == ("predicted", "predicted, its backbone predicted")


def test_a_row_beside_itself_has_ratio_one(steps):
    steps(compute_bound)
    assert by_row(make_records("expansionnet_v2"))["ExpansionNet v2"]["days ratio"] == 1


@pytest.mark.parametrize("flops", [launch_bound, compute_bound])
def test_what_ratios_depend_on_is_said_with_the_numbers_predicted(steps, flops):
    steps(flops)
    made = make_records("expansionnet_v2")
    said = made[0].details.assumptions
    (in_float32,) = [text for text in said if "in float32: " in text]
    (in_tf32,) = [text for text in said if "in tf32: " in text]
    for each in made:
        row, values = each.what.row, each.values
        (other,) = [
            o
            for o in each.details.on_other_devices
            if (o["device"], o["precision"]) == ("A100", "tf32")
        ]
        for text, found in ((in_float32, values), (in_tf32, other)):
            own = row == "ExpansionNet v2"
            assert (f"{row} {found['days ratio']:.2f}" in text) != own
    stages = made[-1].details.stages
    times = [stage.steps * stage.step_s for stage in stages]
    part = sum(t for t, s in zip(times, stages, strict=True) if s.end_to_end) / sum(times)
    assert f"are {100 * part:.0f} % of the time of ExpansionNet v2" in in_float32
    printed = papers.load("expansionnet_v2").table("VII")
    shares = [r.values["days"] / printed.cell(r.what.row, "days").meant for r in made]
    assert any(
        f"days come to {min(shares):.2f} to {max(shares):.2f} of the print" in s for s in said
    )


def test_a_device_of_one_precision_has_no_other_to_name(steps):
    steps(compute_bound)
    said = make_records("expansionnet_v1")[0].details.assumptions
    assert not any("depend on the precision" in text for text in said)


@pytest.mark.parametrize("paper", PAPERS)
def test_every_cell_is_the_papers_and_says_that_it_is_predicted(paper, steps):
    steps(compute_bound)
    made = make_records(paper)
    filled = [c for c in tables.cells(paper, made, PAPERS[paper]) if c.ours is not None]
    assert len(filled) == sum(len(record.values) for record in made)
    for cell in filled:
        assert cell.status == "predicted"
        assert any("not measured" in text for text in cell.assumptions)
        assert cell.paper is not None
    for each in made:
        others = each.details.on_other_devices
        assert {other["device"] for other in others} >= {"T4", "V100", "H100"}
        assert all(set(each.values) <= set(other) for other in others)
        for column, low in (("gain", 1), ("days ratio", 1)):
            assert each.values.get(column, low) >= 0


def test_a_measurement_of_the_cell_is_shown_in_place_of_a_prediction(steps):
    steps(compute_bound)
    what = {"paper": "expansionnet_v1", "table": "1", "row": "Cross Entropy, 1 GPU"}
    device = Device(kind="cuda", name="K80")
    measured = record(Timing, {"gain": 4.0}, **what, status="same data", device=device)
    listed = tables.cells("expansionnet_v1", [*make_records("expansionnet_v1"), measured], "1")
    shown = {(c.row, c.column): (c.ours, c.status) for c in listed}
    assert shown["Cross Entropy, 1 GPU", "gain"] == (4.0, "same data")
    assert shown["Cross Entropy, 1 GPU", "ours"][1] == "predicted"
    assert ("SCST Training, 1 GPU", "ours") not in shown, "blank in print, and nothing of ours"


def test_a_step_that_was_timed_on_the_device_is_taken_as_measured(steps):
    steps(launch_bound)
    sizes = Sizes(batch=48, dropout=0.3)
    case = Case(SUBJECTS["xe-step"], ("literal",), sizes)
    device = Device(kind="cuda", name=find_spec("A100").torch_name, threads=1)
    timed = record(Timing, {"seconds": 0.5}, device=device)
    details = filled(Timing, row=case.row, implementation="literal")
    timed = records.replace(timed, details=details)
    (made,) = [r for r in make_records("expansionnet_v2", [timed]) if "GIT" in r.what.row]
    (stage,) = made.details.stages
    assert (stage.step_s, stage.source) == (0.5, "measured")
    assert made.status == "predicted"  # a sum of steps that were not run
    elsewhere = records.replace(timed, device=Device(kind="cuda", name="another", threads=1))
    assert by_row(make_records("expansionnet_v2", [elsewhere])) == by_row(
        make_records("expansionnet_v2")
    )


def test_schedules_name_rows_and_columns_of_the_papers():
    for paper, entry in training_time.schedules().papers.items():
        table = papers.load(paper).table(entry.table)
        for cell in (*entry.times, *entry.ratios):
            assert table.cell(cell.row, cell.column).value is not None
        assert len(entry.assumptions) >= 4


def test_the_command_predicts_a_table_asked_for_by_name(steps, tmp_path, capsys):
    steps(compute_bound)
    words = ["tables", "expansionnet_v1", "--records", str(tmp_path)]
    assert main([*words, "--table", "1"]) == 0
    said = capsys.readouterr().out
    assert "predicted: " in said and "not measured" in said
    assert re.search(r"Cross Entropy, 1 GPU .* 4\.5\n .* 2\.3", said)
    _, _, assumed = said.partition("What is assumed:\n")
    assert len(re.findall(r"^  \S", assumed, re.MULTILINE)) >= 6
    assert main([*words, "--json"]) == 0
    cells = [c for c in json.loads(capsys.readouterr().out) if c["table"] == "1"]
    assert all(cell["ours"] is None for cell in cells)


def test_the_report_sets_predictions_apart(steps):
    steps(compute_bound)
    made = [record for paper in PAPERS for record in make_records(paper)]
    pages = report_of(made)
    text = "".join(pages.values())
    assert "**predicted**" in pages["README.md"]
    for paper in PAPERS:
        for assumption in training_time.schedules().papers[paper].assumptions:
            assert assumption in text
