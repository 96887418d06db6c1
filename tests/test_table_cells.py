"""A table's cells: ours from records that name them, everything else "not run" with a reason."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import papers, records
from benchmarks.cli import main as cli
from benchmarks.cli import tables, terminal
from benchmarks.errors import InputError
from benchmarks.kinds import Ablation
from benchmarks.perf.flops import parameters
from benchmarks.report.tables import blocks, heading
from tests.support.records import record
from tests.support.tolerances import PRINTED_FLOPS
from torch_impl.models import ExpansionNet

BASELINE = "attention | attention"


def measured(value, *, status="same data", time="2024-01-01T00:00:00+00:00", **changes):
    values = changes.pop("values", {"CIDEr-D": value})
    where = {"row": BASELINE} | changes.pop("what", {})
    return record(Ablation, values, status=status, time=time, **where, **changes)


def cell(made, row=BASELINE, column="CIDEr-D"):
    listed = tables.cells("expansionnet_v2", made, "I")
    return next(c for c in listed if (c.row, c.column) == (row, column))


@pytest.mark.parametrize("paper", papers.names())
def test_without_records_every_cell_is_not_run_with_a_reason(paper):
    listed = tables.cells(paper, [])
    printed = [c for table in papers.load(paper).tables for c in table.cells if c.value is not None]
    assert len(listed) == len(printed)
    for one in listed:
        assert (one.ours, one.status, one.records) == (None, "not run", ())
        assert one.reason


@given(st.floats(0, 200), st.sampled_from(records.STATUSES))
def test_a_record_fills_its_cell_and_no_other(value, status):
    made = [measured(value, status=status)]
    filled = [c for c in tables.cells("expansionnet_v2", made) if c.ours is not None]
    assert filled == [cell(made)]
    assert (filled[0].ours, filled[0].status, filled[0].paper) == (value, status, 115.8)
    assert filled[0].records[0].command == made[0].command
    assert filled[0].reason is None


def test_records_of_other_places_fill_nothing():
    elsewhere = [
        measured(1.0, what={"paper": "expansionnet_v1"}),
        measured(1.0, what={"table": "II"}),
        measured(1.0, what={"row": "static:8,16,32 | dynamic:16"}),
        measured(1.0, values={"CIDEr": 1.0}),
    ]
    assert all(c.ours is None for c in tables.cells("expansionnet_v2", elsewhere))


@given(st.lists(st.floats(0, 200), min_size=1, max_size=5))
def test_seeds_of_one_measurement_are_averaged(values):
    made = [measured(value, seeds=[seed]) for seed, value in enumerate(values)]
    found = cell(made)
    assert found.ours == pytest.approx(sum(values) / len(values))
    assert [r.seeds for r in found.records] == [[seed] for seed in range(len(values))]


def test_a_later_record_of_the_same_measurement_replaces_the_earlier():
    later = measured(2.0, time="2024-01-02T00:00:00+00:00")
    assert cell([later, measured(1.0)]).ours == 2.0


def test_the_papers_own_data_win_over_others_whatever_is_newer():
    own = measured(1.0, data={"name": "MS-COCO"})
    other = measured(
        2.0, status="other data", time="2024-02-01T00:00:00+00:00", data={"name": "Flickr8k"}
    )
    embedded = measured(3.0, status="embedded", data={"name": "scenes"})
    assert cell([embedded, own, other]).ours == 1.0
    assert (cell([embedded, other]).ours, cell([embedded, other]).status) == (2.0, "other data")


def test_different_data_sets_are_not_averaged_together():
    old = measured(1.0, status="other data", data={"name": "Flickr8k", "split": "val"})
    new = measured(
        3.0,
        status="other data",
        data={"name": "Flickr8k", "split": "test"},
        time="2024-02-01T00:00:00+00:00",
    )
    assert cell([old, new]).ours == 3.0


def test_a_misprint_is_shown_as_printed_with_its_correction():
    listed = tables.cells("expansionnet_v2", [], "IV")
    odd = [c for c in listed if c.corrected is not None]
    assert [(c.paper, c.corrected) for c in odd] == [(8.8, 68.8)]


def test_unknown_papers_and_tables_are_named():
    with pytest.raises(InputError, match="unknown paper"):
        tables.cells("expansionnet", [])
    with pytest.raises(InputError, match="no table"):
        tables.cells("expansionnet_v2", [], "X")


def test_the_command_lists_cells_as_json_and_counts_table_vi_itself(capsys, tmp_path):
    command = ["tables", "expansionnet_v2", "--table", "vi", "--records", str(tmp_path), "--json"]
    assert cli.main(command) == 0
    listed = json.loads(capsys.readouterr().out)
    assert len(listed) == 12
    for one in listed:
        assert {"table", "row", "column", "paper", "ours", "status", "record"} <= set(one)
        assert one["ours"] == pytest.approx(one["paper"], rel=PRINTED_FLOPS)
        assert one["status"] == "recorded means"
        assert one["record"]


def test_the_command_reads_records_and_prints_the_rest_as_not_run(capsys, tmp_path):
    records.append([measured(99.5, status="embedded")], tmp_path / "r.jsonl")
    command = ["tables", "expansionnet_v2", "--table", "I", "--records", str(tmp_path)]
    assert cli.main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [n for n, line in enumerate(lines) if line.startswith(f"  {BASELINE} ")]
    assert any("115.8" in lines[row] and "99.50" in lines[row + 1] for row in rows)
    assert any("Printed, and ours below it: embedded (scenes" in line for line in lines)
    assert sum("Not run: needs the images" in line for line in lines) == 1


@given(st.lists(st.floats(0, 999).map(lambda value: round(value, 1)), min_size=1, max_size=7))
def test_ours_stands_below_what_is_printed(values):
    names = ["B1", "B2", "B3", "B4", "METEOR", "ROUGE-L", "CIDEr-D"][: len(values)]
    made = measured(0.0, values=dict(zip(names, values, strict=True)))
    table = papers.load("expansionnet_v2").table("I")
    lines = list(terminal.lines(blocks("expansionnet_v2", table, [made])))
    rows = [n for n, line in enumerate(lines) if line.startswith(f"{BASELINE} ")]
    for name, value in zip(names, values, strict=True):
        head = heading(table, name)
        (row,) = [row for row in rows if head in lines[row - 1]]
        edge = lines[row - 1].index(head) + len(head)
        printed, ours = (line[:edge].split(" ")[-1] for line in lines[row : row + 2])
        assert (printed, ours) == (f"{table.cell(BASELINE, name).value:.1f}", f"{value:.2f}")


def test_a_column_may_have_a_reason_of_its_own():
    listed = {(c.row, c.column): c.reason for c in tables.cells("expansionnet_v2", [], "VII")}
    shared = papers.load("expansionnet_v2").table("VII").not_run
    for (row, column), reason in listed.items():
        assert (reason == shared) == column.startswith("days"), (row, column)
        assert "step" not in reason or column.startswith("days")


def test_earlier_work_is_nobody_s_to_train_here_and_a_blank_is_no_cell():
    listed = {(c.row, c.column): c for c in tables.cells("arnet", [], "1")}
    assert listed["NIC", "B1"].reason == papers.EARLIER
    assert "captionbench reproduce arnet" in listed["Encoder-Decoder", "B1"].reason
    assert ("NIC", "SPICE") not in listed
    made = measured(0.1, what={"paper": "arnet", "table": "1", "row": "NIC"}, values={"SPICE": 0.1})
    filled = [c for c in tables.cells("arnet", [made], "1") if c.ours is not None]
    assert [(c.row, c.column, c.paper) for c in filled] == [("NIC", "SPICE", None)]


@pytest.mark.parametrize("paper", ["arnet", "lstm_readonly", "middle_out"])
def test_what_is_no_earlier_work_has_been_measured(paper):
    """Or its record, or its reason, names what it wants; captions are in the report."""
    known = records.load(records.PUBLISHED)
    for table in papers.load(paper).tables:
        if table.kind == "captions":
            continue
        earlier = {row.name for row in table.rows if row.earlier or row.not_run}
        for one in tables.cells(paper, known, table.name):
            if one.ours is None:
                lacks = one.column == "SPICE" and "SPICE needs" in one.reason
                assert lacks or one.row in earlier, (table.name, one.row, one.column)


def test_a_score_that_a_record_lacks_is_missing_for_its_reason():
    made = measured(1.0, missing={"SPICE": "no models"})
    assert cell([made], column="SPICE").reason == "no models"
    assert cell([made], column="B1").reason != "no models"
    made = measured(
        1.0,
        what={"table": "II", "row": "ExpansionNet v2"},
        values={"XE B1": 1.0},
        missing={"SPICE": "no models"},
    )
    listed = tables.cells("expansionnet_v2", [made], "II")
    lacks = {(c.row, c.column) for c in listed if c.reason == "no models"}
    assert lacks == {("ExpansionNet v2", f"{stage} SPICE") for stage in ("XE", "RL")}


def test_figures_and_what_no_paper_has_come_after_the_tables(capsys, tmp_path):
    for name in ("lambda", "beyond"):
        place = {"paper": "arnet", "table": name, "row": f"{name} 1"}
        records.append([measured(2.5, what=place)], tmp_path / "r.jsonl")
    assert cli.main(["tables", "arnet", "--records", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    heads = [line for line in out.splitlines() if line.startswith("Table ")]
    assert [head.split(" (")[0] for head in heads[-2:]] == ["Table beyond", "Table lambda"]
    assert "Table lambda (section 5.1.5): Figure 5. CIDEr by the weight" in heads[-1]
    command = ["tables", "arnet", "--records", str(tmp_path), "--table"]
    assert cli.main([*command, "beyond", "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)
    assert (one["table"], one["row"], one["paper"], one["ours"]) == (
        "beyond",
        "beyond 1",
        None,
        0.025,  # a fraction, as the paper prints scores
    )
    assert cli.main([*command, "none"]) == 2
    assert "expected one of 1, 2, 3, 4, 5, 'beyond', 'lambda'" in capsys.readouterr().err


def test_parameters_are_those_of_the_model_that_is_built(capsys, tmp_path):
    built = sum(p.numel() for p in ExpansionNet().parameters())
    found = parameters.counted()
    assert found["captioner"] == built
    # the print's 38 million is the captioner, cut
    assert papers.load("expansionnet_v2").table("VII").cell(
        parameters.ROW, "parameters"
    ).value == pytest.approx(built // 10**6 * 10**6)
    command = ["tables", "expansionnet_v2", "--records", str(tmp_path)]
    assert cli.main(command) == 0
    said = capsys.readouterr().out
    lines = said.splitlines()
    named = [n for n, line in enumerate(lines) if line.startswith(f"  {parameters.ROW}    ")]
    (row,) = [n for n in named if "  38 M" in lines[n]]
    assert lines[row + 1].split()[:2] == [f"{built / 1e6:.4g}", "M"]
    assert "parameters: a vocabulary of 10,000 words, without the" in said
    assert f"{found['backbone']:,} more" in said


@pytest.mark.parametrize("paper", papers.names())
def test_every_table_of_every_paper_is_printed_by_name(paper, capsys, tmp_path):
    assert cli.main(["tables", paper, "--records", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    for table in papers.load(paper).tables:
        assert f"Table {table.name} (" in out


@pytest.mark.parametrize("paper", papers.names())
def test_json_names_every_table_those_without_cells_with_the_reason(paper, capsys, tmp_path):
    assert cli.main(["tables", paper, "--records", str(tmp_path), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    for table in papers.load(paper).tables:
        entries = [entry for entry in listed if entry["table"] == table.name]
        # a parameter count of ours may stand where the paper has none
        least = sum(cell.value is not None for cell in table.cells)
        assert (least or 1) <= len(entries) <= (len(table.cells) or 1)
        if not table.cells:
            said = {"table": table.name, "status": "not run", "reason": table.not_run}
            assert {name: v for name, v in entries[0].items() if v is not None} == said
            assert {"row", "column", "paper", "ours", "record"} <= set(entries[0])


def test_records_of_one_status_alone_and_rows_in_the_order_of_their_numbers(capsys, tmp_path):
    for status, value in (("other data", 1.0), ("embedded", 2.0)):
        for weight in ("0.1", "0.005", "0.05"):
            place = {"paper": "arnet", "table": "lambda", "row": f"lambda = {weight}"}
            made = measured(value, what=place, status=status, data={"name": status})
            records.append([made], tmp_path / "r.jsonl")
    command = ["tables", "arnet", "--table", "lambda", "--records", str(tmp_path), "--json"]
    for options, expected in (([], 0.01), (["--status", "embedded"], 0.02)):
        assert cli.main([*command, *options]) == 0
        listed = json.loads(capsys.readouterr().out)
        assert [one["row"][9:] for one in listed] == ["0.005", "0.05", "0.1"]
        assert {one["ours"] for one in listed} == {expected}


def test_a_missing_folder_of_data_is_named(capsys, tmp_path):
    assert cli.main(["tables", "arnet", "--data", str(tmp_path / "none")]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and f"{tmp_path / 'none'}: no such folder" in captured.err


def test_a_missing_folder_of_records_is_named(capsys, tmp_path):
    command = ["tables", "arnet", "--records", str(tmp_path), "--records", str(tmp_path / "none")]
    assert cli.main(command) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and len(captured.err.splitlines()) == 1
    assert f"{tmp_path / 'none'}: no such folder" in captured.err


@pytest.mark.parametrize("options", [["nothing"], ["expansionnet_v2", "--table", "X"]])
def test_bad_names_are_one_line_and_exit_code_2(options, capsys):
    assert cli.main(["tables", *options]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
