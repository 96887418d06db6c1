"""The papers' numbers as data: complete, and consistent with themselves and the text."""

import json
import math
import re

import pytest

from benchmarks import papers
from benchmarks.errors import InputError
from benchmarks.papers.queue import EXPERIMENTS
from benchmarks.verify.tolerances import SUMS
from reference.equations import PAPERS
from torch_impl.layers.transformer import Mixer

SHAPES = {
    "expansionnet_v1": {
        "1": (4, 3),
        "2": (5, 12),
        "3": (8, 8),
        "4": (16, 12),
        "5": (7, 14),
        "6": (4, 4),
        "7": (4, 4),
    },
    "expansionnet_v2": {
        "I": (12, 8),
        "II": (10, 12),
        "III": (8, 12),
        "IV": (12, 14),
        "V": (8, 3),
        "VI": (12, 1),
        "VII": (8, 7),
        "VIII": (2, 2),
        "IX": (2, 1),
    },
    "arnet": {"1": (15, 8), "2": (4, 2), "3": (9, 6), "4": (4, 2), "5": (4, 1)},
    "lstm_readonly": {"losses": (2, 2), "words": (1, 1), "I": (18, 2)},
    "middle_out": {
        "1": (2, 2),
        "2": (13, 4),
        "3": (4, 5),
        "4": (2, 2),
        "5": (4, 4),
        "6": (3, 2),
        "7": (3, 4),
        "8": (4, 1),
        "9": (4, 1),
        "10": (15, 2),
    },
}
METRICS = ("B1", "B2", "B3", "B4", "METEOR", "ROUGE-L", "CIDEr-D", "SPICE")
ABLATIONS = (("expansionnet_v1", "3"), ("expansionnet_v2", "I"), ("expansionnet_v2", "VI"))
FIGURES = {
    "expansionnet_v1": 6,
    "expansionnet_v2": 4,
    "arnet": 5,
    "lstm_readonly": 8,
    "middle_out": 3,
}


def value(paper: str, table: str, row: str, column: str) -> float:
    found = papers.load(paper).table(table).cell(row, column).meant
    assert isinstance(found, float)
    return found


def test_there_is_a_file_for_each_of_the_five_papers():
    assert set(papers.names()) == set(PAPERS) == set(SHAPES)


@pytest.mark.parametrize("paper", sorted(SHAPES))
def test_every_table_and_figure_is_listed_as_printed_with_its_place_and_a_reason(paper):
    content = papers.load(paper)
    shapes = [(t.name, (len(t.rows), len(t.columns))) for t in content.tables]
    assert shapes == list(SHAPES[paper].items())
    for table in content.tables:
        assert table.place and table.caption and table.not_run and table.columns
        assert len(table.cells) == len(table.rows) * len(table.columns)
    figures = [figure.name for figure in content.figures]
    assert figures == [str(n + 1) for n in range(FIGURES[paper])]


@pytest.mark.parametrize("paper", sorted(SHAPES))
def test_cells_are_finite_numbers_or_captions_or_missing_where_the_paper_says_so(paper):
    for table in papers.load(paper).tables:
        for cell in table.cells:
            if table.kind == "captions":
                assert isinstance(cell.value, str) and cell.value == cell.value.strip() != ""
            elif cell.column == "data sets":
                assert cell.value is None or isinstance(cell.value, str)
            elif cell.value is not None:
                assert isinstance(cell.value, float)
                assert math.isfinite(cell.value) and cell.value >= 0
            assert cell.corrected is None or cell.note


@pytest.mark.parametrize("paper", sorted(SHAPES))
def test_scores_lie_in_the_range_of_their_metric(paper):
    top = {"B": 100, "M": 50, "R": 100, "C": 150, "S": 30}
    for table in papers.load(paper).tables:
        for cell in table.cells:
            name = cell.column.removeprefix("XE ").removeprefix("RL ")
            if name.split()[0] in METRICS and isinstance(cell.meant, float):
                assert cell.meant < top[name[0]], cell


@pytest.mark.parametrize("paper", sorted(SHAPES))
def test_longer_n_grams_match_less(paper):
    for table in papers.load(paper).tables:
        for row in table.rows:
            cells = {c.column: c.meant for c in table.cells if c.row == row.name}
            for prefix, suffix in (("", ""), ("XE ", ""), ("RL ", ""), ("", " c5"), ("", " c40")):
                bleu = [cells.get(f"{prefix}B{n}{suffix}") for n in (1, 2, 3, 4)]
                known = [b for b in bleu if isinstance(b, float)]
                assert known == sorted(known, reverse=True), (table.name, row.name)


@pytest.mark.parametrize(("paper", "table"), [("expansionnet_v1", "5"), ("expansionnet_v2", "IV")])
def test_more_references_score_higher_on_the_server(paper, table):
    content = papers.load(paper).table(table)
    for row in content.rows:
        for metric in METRICS[:-1]:
            c5, c40 = (content.cell(row.name, f"{metric} {c}").meant for c in ("c5", "c40"))
            assert c5 is None or c5 < c40, (row.name, metric)


@pytest.mark.parametrize(("paper", "table"), ABLATIONS)
def test_ablation_rows_are_named_by_their_mixers(paper, table):
    for row in papers.load(paper).table(table).rows:
        assert row.encoder and row.decoder
        assert row.name == f"{row.encoder} | {row.decoder}"
        assert str(Mixer.parse(row.encoder)) == row.encoder
        assert str(Mixer.parse(row.decoder, causal=True)) == row.decoder


def test_v2_counts_the_operations_of_the_models_that_it_ablates():
    content = papers.load("expansionnet_v2")
    names = [[row.name for row in content.table(table).rows] for table in ("I", "VI")]
    assert names[0] == names[1]


def test_v1_table_1_gains_are_ratios_of_its_times():
    table = papers.load("expansionnet_v1").table("1")
    for row in table.rows:
        ours, standard, gain = (table.cell(row.name, c).value for c in ("ours", "standard", "gain"))
        assert (ours is None) == (gain is None)
        if ours is not None:
            assert round(standard / ours, 1) == gain
    out_of_memory = table.cell("SCST Training, 1 GPU", "ours")
    assert out_of_memory.printed == "×" and out_of_memory.note == "out of memory"


def test_v1_repeats_its_own_rows_alike_but_for_the_cell_that_is_noted():
    v1 = papers.load("expansionnet_v1")
    differing = []
    for row in ("Base (ours)", "ExpansionNet_{64,16} (ablation)"):
        for column in v1.table("2").columns:
            second, fourth = (v1.table(t).cell(row, column.name) for t in ("2", "4"))
            if second.value != fourth.value:
                differing.append((row, column.name))
                assert second.note and fourth.note
    assert differing == [("ExpansionNet_{64,16} (ablation)", "XE ROUGE-L")]
    for mixers, row in (
        ("attention | attention", "Base (ours)"),
        ("static:64 | dynamic:1", "ExpansionNet_{64,1} (ablation)"),
        ("static:64 | dynamic:16", "ExpansionNet_{64,16} (ablation)"),
    ):
        for metric in ("B1", "B4", "METEOR", "ROUGE-L", "CIDEr-D", "SPICE"):
            third = v1.table("3").cell(mixers, metric)
            assert third.value == v1.table("2").cell(row, f"XE {metric}").value


def test_v1_abstract_and_tables_agree():
    four = "ExpansionNet_{64,16} (ensemble of 4)"
    assert value("expansionnet_v1", "4", four, "RL CIDEr-D") == 134.6
    assert value("expansionnet_v1", "4", "ExpansionNet_{64,16}", "RL CIDEr-D") == 131.4
    assert value("expansionnet_v1", "5", "ExpansionNet_{64,16}", "CIDEr-D c40") == 130.0


def test_v2_abstract_and_tables_agree():
    ours = "ExpansionNet v2"
    assert value("expansionnet_v2", "III", ours, "RL CIDEr-D") == 143.7
    assert value("expansionnet_v2", "IV", ours, "CIDEr-D c40") == 140.8
    assert value("expansionnet_v2", "V", "All CIDEr-D", ours) == 72.9
    assert value("expansionnet_v2", "VII", "PureT [11]", "days ratio") == 2.8


def test_v2_claims_over_pure_t_follow_from_its_tables():
    margins = {
        "II": {"B1": 0.7, "B4": 0.6, "METEOR": 0.1, "ROUGE-L": 0.4, "CIDEr-D": 2.2, "SPICE": 0.3},
        "III": {"B1": 0.1, "B4": 0.6, "ROUGE-L": 0.3, "CIDEr-D": 2.7, "SPICE": 0.4},
    }
    for table, claims in margins.items():
        for metric, margin in claims.items():
            ours, theirs = (
                value("expansionnet_v2", table, row, f"RL {metric}")
                for row in ("ExpansionNet v2", "PureT [11]")
            )
            assert round(ours - theirs, 1) == margin, (table, metric)


def test_v2_table_vi_has_the_ratio_that_the_text_cuts_to_1_63():
    first, *_, last = (row.values[0] for row in papers.load("expansionnet_v2").table("VI").rows)
    assert math.floor(100 * last / first) / 100 == 1.63


def test_v2_table_vii_ratios_are_the_cut_quotients_of_its_quantities():
    table = papers.load("expansionnet_v2").table("VII")
    for row in table.rows:
        for column in ("parameters", "images", "days"):
            mine, base = (table.cell(r, column).value for r in (row.name, "ExpansionNet v2"))
            ratio = table.cell(row.name, f"{column} ratio").value
            assert (mine is None) == (ratio is None)
            if mine is None:  # a cell that two rows share
                continue
            assert math.floor(100 * mine / base * (1 + SUMS)) / 100 == ratio, (row.name, column)


def test_arnet_s_relative_improvements_follow_from_its_table_of_code():
    for model, percent in (("Encoder-Decoder", 23.40), ("Attentive Encoder-Decoder", 36.36)):
        without, with_arnet = (
            value("arnet", "3", row, "B4") for row in (model, f"{model} + ARNet")
        )
        assert round(100 * (with_arnet / without - 1), 2) == percent


def test_middle_out_s_improvements_are_larger_in_its_table_than_in_its_text():
    rows = ("Sequence-to-Sequence with Attention", "Middle-Out with Self-Attention")
    mse, symmetric = (
        [value("middle_out", "1", row, column) for row in rows]
        for column in ("MSE", "symmetric MSE")
    )
    assert round(100 * (1 - mse[1] / mse[0])) == 77  # "a 75% decrease"
    assert round(symmetric[0] / symmetric[1]) == 591  # "570 times smaller"
    table = papers.load("middle_out").table("1")
    assert all(table.cell(rows[1], column.name).note for column in table.columns)


def test_middle_out_repeats_its_own_rows_alike():
    for column in ("METEOR", "CIDEr-D", "ROUGE-L", "B4"):
        model = "Middle-Out + Attention + Self-Attention"
        best = value("middle_out", "2", f"oracle: {model}", column)
        assert best == value("middle_out", "5", model, column)
        assert best == value("middle_out", "3", "100 %", column)
        assert value("middle_out", "3", "classifier", column) == value(
            "middle_out", "2", model, column
        )


def test_the_missing_digit_of_v2_table_iv_is_kept_and_corrected():
    cell = papers.load("expansionnet_v2").table("IV").cell("ExpansionNet v2", "B2 c5")
    assert (cell.value, cell.corrected, cell.meant) == (8.8, 68.8, 68.8)


def test_tables_are_found_however_they_are_named():
    v2 = papers.load("expansionnet_v2")
    assert v2.table("VI") is v2.table(" table vi ") is v2.table("Vi")


def test_unknown_names_list_the_known_ones():
    with pytest.raises(InputError, match="expansionnet_v2, lstm_readonly"):
        papers.load("../expansionnet_v2")
    with pytest.raises(InputError, match="VIII, IX"):
        papers.load("expansionnet_v2").table("X")
    with pytest.raises(InputError, match="no cell"):
        papers.load("expansionnet_v2").table("VI").cell("attention | attention", "B1")


BREAKS = {
    "a short row": (lambda t: t["rows"][0]["values"].pop(), "has 7 values, expected 8"),
    "a row twice": (lambda t: t["rows"].append(t["rows"][0]), "stands twice"),
    "a column twice": (lambda t: t["columns"].append({"name": "B1"}), "stands twice"),
    "a note on nothing": (
        lambda t: t["notes"].append({"row": "x", "column": "B1", "note": ""}),
        "no cell",
    ),
    "no caption": (lambda t: t.pop("caption"), "missing required field `caption` - at `..tables"),
    "an unknown field": (lambda t: t.update(colour="red"), "unknown field `colour` - at `..tables"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_file_that_does_not_hold_together_is_named(name, tmp_path, monkeypatch):
    damage, message = BREAKS[name]
    content = json.loads((papers.FOLDER / "expansionnet_v2" / "tables.json").read_text())
    damage(content["tables"][0])
    (tmp_path / "expansionnet_v2").mkdir()
    (tmp_path / "expansionnet_v2" / "tables.json").write_text(json.dumps(content))
    monkeypatch.setattr(papers, "FOLDER", tmp_path)
    with pytest.raises(InputError, match=message) as caught:
        papers.load("expansionnet_v2")
    assert "expansionnet_v2/tables.json" in str(caught.value)


@pytest.mark.parametrize("paper", PAPERS)
def test_the_command_that_a_table_names_trains_it(paper):
    for table in papers.load(paper).tables:
        for words in re.findall(r"captionbench reproduce (\w+) --table (\w+)", table.not_run):
            assert words[0] == paper
            assert any(words[1] in e.tables for e in EXPERIMENTS if e.paper == paper)
