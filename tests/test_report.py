"""The report: a pure function of records, whole in one file, silent where nothing was measured."""

import os
import pickle
import shutil
import subprocess
import sys
import time
from html.parser import HTMLParser

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from benchmarks import papers, records
from benchmarks.cli import publish, report
from benchmarks.cli.main import main
from benchmarks.kinds import Ablation, Attention, Evaluation
from benchmarks.papers.arnet import captions as arnet
from benchmarks.papers.expansionnet_v2 import on_scenes
from benchmarks.papers.experiment import Place
from benchmarks.papers.lstm_readonly import read_only
from benchmarks.papers.middle_out import captions as middle_out
from benchmarks.report import (
    build,
    evidence,
    html,
    jobs,
    markdown,
)
from benchmarks.report.document import Box, Page, Section, Table, Value
from benchmarks.scoring import java, overlay
from benchmarks.training import fit
from tests.support.records import filled, record
from torch_impl.models import build as build_model

VOID = {"meta", "img", "br", "link", "input", "source"}


class Balanced(HTMLParser):
    """Fails on a tag that is closed out of order, or never."""

    def __init__(self):
        super().__init__()
        self.open, self.sources, self.places, self.rows = [], [], set(), []

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.sources += [attributes[name] for name in ("src", "href") if name in attributes]
        if "id" in attributes:
            assert attributes["id"] not in self.places
            self.places.add(attributes["id"])
        if tag == "tr":
            self.rows.append(0)
        if tag in ("td", "th") and self.rows:
            self.rows[-1] += 1
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag


def parse(text):
    parser = Balanced()
    parser.feed(text)
    assert not parser.open
    return parser


def site(made, jpegs=None):
    return html.texts(build.pages(made, jpegs), evidence.link)


def ablation_record(row, seed, scores, kind=Ablation, status="embedded", **details):
    given = {
        "examples": [{"image": 1, "caption": "a <b> & c", "reference": "d"}],
        "missing": {"METEOR": "needs Java"},
        **details,
    }
    return record(
        kind,
        {"B1": 50.0, "CIDEr-D": 100 * sum(scores) / len(scores)},
        row=row,
        status=status,
        key=f"{row}{seed}",
        n=len(scores),
        seeds=[seed],
        signature="signature",
        beam_size=3,
        cider_d=list(scores),
        parameters=10,
        **given,
    )


def test_without_records_nothing_of_ours_is_filled_in():
    for page in build.pages([]):
        for block in (block for section in page.sections for block in section.blocks):
            if isinstance(block, Table):
                cells = [cell for row in block.rows for cell in row if isinstance(cell, Value)]
                assert not any(cell.records or cell.text.strip("–" + html.MARKS) for cell in cells)
            if isinstance(block, Box):
                assert block.word == "not run"


scores = st.lists(st.floats(0, 10), min_size=3, max_size=3)


@settings(max_examples=2, phases=[Phase.generate])
@given(st.lists(st.tuples(scores, scores), min_size=1, max_size=3))
def test_a_report_is_a_pure_function_whatever_the_order_of_records(pairs):
    made = [
        ablation_record(row, seed, values)
        for seed, pair in enumerate(pairs)
        for row, values in zip(
            ("attention | attention", "static:16 | attention"), pair, strict=True
        )
    ]
    once, again = (site(r) for r in (made, made[::-1]))
    assert once == again
    for name, text in once.items():
        if name.endswith(".html"):
            parse(text)


def test_the_site_needs_no_network_its_links_resolve_and_text_is_escaped():
    made = [
        ablation_record("attention | attention", 0, [1.0, 2.0]),
        ablation_record(
            "static:16 | attention",
            0,
            [1.0, 2.0],
            kind=Evaluation,
            status="other data",
            epochs=1,
            training_seconds=60.0,
            validations=[{"epoch": 1, "CIDEr-D": 0.3, "seconds": 1.0}],
        ),
    ]
    shown = build.pages(made, {1: b"jpeg"})
    pictures = dict(html.pictures(shown))
    files = html.texts(shown, evidence.link)
    pages = {name: parse(text) for name, text in files.items() if name.endswith(".html")}
    for name, parser in pages.items():
        for source in parser.sources:
            if source.startswith("data:"):
                continue
            target, _, place = source.partition("#")
            assert (target or name) in files or target in pictures, source
            assert not place or place in pages[target or name].places, source
        assert len(files[name]) < 1_000_000
    assert pictures["photographs/1.jpg"] == b"jpeg"
    text = "".join(files[name] for name in pages)
    assert "a &lt;b&gt; &amp; c" in text and "a <b>" not in text
    assert "a &lt;b> &amp; c" in "".join(markdown.texts(build.pages(made)).values())


@given(
    st.lists(
        st.lists(
            st.one_of(st.none(), st.text(max_size=5), st.floats(-9, 9)), min_size=2, max_size=2
        ),
        max_size=4,
    )
)
def test_every_row_of_a_table_has_all_its_cells(rows):
    table = Table("t", "caption", ("a", "b"), rows)
    files = html.texts([Page("p", "t", "l", (Section("s", (table,)),))], evidence.link)
    assert parse(files["p.html"]).rows == [2] * (1 + len(rows))
    lines = markdown.table(Table("t", "c", ("a", "b"), [["x|y", 1.0]])).splitlines()
    assert lines[-1] == "| x\\|y | 1 |"


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A data folder with what was released, and a switch for what can score here."""
    for released in jobs.RELEASED:
        for path in released.paths(tmp_path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(released.file)

    def has(*scorers):
        monkeypatch.setattr(java, "available", lambda: scorers)
        planned = jobs.plan(tmp_path, quick=False)
        pickle.dumps([job.run for job in planned])  # as workers get them
        return {job.name: job.gives() for job in planned}

    return has


def test_what_can_be_scored_since_is_measured_again_and_nothing_else(machine):
    bare, with_java, with_models = machine(), machine("Java"), machine("Java", "SPICE models")
    assert bare == machine()
    scored = {name for name in bare if name.startswith(("score", "train"))}
    regularised = len(arnet.ROWS) - len(arnet.BASELINES)
    trained = (
        regularised + len(read_only.ROWS) + len({middle_out.shares(r) for r in middle_out.ALL})
    )
    assert len(scored) == len(jobs.RELEASED) + len(on_scenes.ROWS) + trained
    for before, after in ((bare, with_java), (with_java, with_models)):
        assert {name for name in bare if before[name] != after[name]} == scored


def test_the_work_of_a_row_is_its_training_too(monkeypatch, tmp_path):
    def slow(_, configuration, *__):
        time.sleep(0.2)
        return fit.Result(build_model(configuration), [], None, 0.2, True)

    def scored(*_, details, **__):
        return record(Ablation, wall_s=0.0, **details, examples=[{}])

    monkeypatch.setattr(on_scenes, "fit", slow)
    monkeypatch.setattr(on_scenes, "evaluate", scored)
    monkeypatch.setattr(overlay, "attention", lambda *_: filled(Attention))
    run, *_ = on_scenes.EXPERIMENT.runs("quick", Place(None, tmp_path), [0])
    (made,) = run.make()
    assert made.wall_s >= 0.2
    assert made.details.training_seconds == 0.2


def test_a_report_goes_where_it_is_told_to(tmp_path, monkeypatch, capsys):
    out = tmp_path / "of mine"
    monkeypatch.setattr(report, "PUBLISHED", tmp_path / "none")  # all of them: --check
    for words, plan, page in (
        (["--quick"], lambda *_: [], "local/quick/site/index.html"),
        (["--published"], None, "site/index.html"),  # nothing is planned
    ):
        monkeypatch.setattr(jobs, "plan", plan)
        assert main(["report", *words, "--data", str(tmp_path), "--out", str(out)]) == 0
        assert (out / page).exists() and str(out / page) in capsys.readouterr().out
    assert main(["report", "--out", __file__]) == 2
    assert "expected a folder" in capsys.readouterr().err


def test_an_installed_package_writes_into_the_user_s_folder(tmp_path):
    """And has no published records; nothing of it is written into itself."""
    installed, here = tmp_path / "installed", tmp_path / "here"
    here.mkdir()
    for name in ("benchmarks", "reference", "torch_impl"):
        shutil.copytree(records.ROOT / name, installed / name)
    code = (
        "from benchmarks import records; from benchmarks.cli.main import main\n"
        "from benchmarks.report import jobs; jobs.plan = lambda *_: []\n"
        "assert main(['report']) == 0 and not records.load(records.PUBLISHED)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    environment.pop("CAPTIONBENCH_DATA", None)
    subprocess.run([sys.executable, "-c", code], cwd=here, env=environment, check=True)
    assert (here / "captionbench-report" / "site" / "index.html").exists()
    assert not list(installed.rglob("site")) and not (installed / "reports").exists()


def test_published_pages_are_what_the_published_records_give():
    assert main(["report", "--check"]) == 0


def test_import_publishes_once_and_refuses_what_is_no_record(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(publish, "PUBLISHED", tmp_path / "reports" / "records")
    monkeypatch.setattr(publish, "REPORTS", tmp_path / "reports")
    path = tmp_path / "mine.jsonl"
    records.append([ablation_record("attention | attention", 0, [1.0])], path)
    for expected in (1, 0):
        assert main(["import", str(path)]) == 0
        assert capsys.readouterr().out.startswith(f"{expected} of 1 records published")
    assert build.stale(records.load(tmp_path / "reports" / "records"), tmp_path / "reports") == []
    page = tmp_path / "reports" / "README.md"
    page.write_text(page.read_text() + "edited by hand\n")
    assert build.stale(records.load(tmp_path / "reports" / "records"), tmp_path / "reports") == [
        "README.md"
    ]
    path.write_text("{}\n")
    assert main(["import", str(path)]) == 2
    assert main(["import", str(tmp_path / "none.jsonl")]) == 2
    assert len(records.load(tmp_path / "reports" / "records")) == 1


def test_a_missing_data_folder_is_bad_input(tmp_path, capsys):
    assert main(["report", "--data", str(tmp_path / "none")]) == 2
    assert "no such folder" in capsys.readouterr().err


@pytest.mark.parametrize("released", jobs.RELEASED, ids=lambda released: released.file)
def test_released_captions_belong_to_a_printed_row(released):
    table = papers.load(released.paper).table(released.table)
    for metric in ("B1", "B4", "METEOR", "ROUGE-L", "CIDEr-D"):
        assert isinstance(table.cell(released.row, jobs.STAGE + metric).meant, float)
