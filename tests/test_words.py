"""How often words occur: what is counted, its share, its areas, one command."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import records
from benchmarks.cli import tables
from benchmarks.cli.main import main
from benchmarks.papers.lstm_readonly import words
from benchmarks.papers.lstm_readonly.words import LEFT_OUT, MIN_COUNT, OF_ALL, OF_COUNTED, SOURCES
from tests.support import caption_files

CAPTIONS = st.lists(
    st.lists(st.sampled_from(["dog", "cat", "man", "runs", *sorted(LEFT_OUT)[:4]]), max_size=8).map(
        " ".join
    ),
    max_size=30,
)


@given(CAPTIONS)
def test_every_word_is_counted_or_left_out_for_one_reason(captions):
    counts, left_out = words.count(captions)
    assert counts.total() + sum(left_out.values()) == sum(len(c.split()) for c in captions)
    assert not LEFT_OUT & counts.keys()
    assert all(times >= MIN_COUNT for times in counts.values())
    # neither the order of captions nor how they are written changes anything
    again, _ = words.count([f"{caption.upper()}." for caption in captions[::-1]])
    assert words.ordered(again) == words.ordered(counts)


@given(st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(1, 5), max_size=9))
def test_words_are_in_falling_order_and_equals_by_the_alphabet(counts):
    found = words.ordered(Counter(counts))
    assert dict(found) == counts
    pairs = [(-times, word) for word, times in found]
    assert pairs == sorted(pairs)


@pytest.fixture
def data(tmp_path):
    return caption_files.write(tmp_path / "data")


def test_one_command_counts_every_source_and_fills_the_paper_s_place(data, tmp_path, capsys):
    out = tmp_path / "records" / "words.jsonl"
    command = ["reproduce", "lstm_readonly", "--table", "words", "--out", str(out)]
    command += ["--work", str(tmp_path / "work")]
    for _ in range(2):  # what is on record is not counted again
        assert main([*command, "--data", str(data)]) == 0
        made = {r.what.row: r for r in records.read(out)}
        assert list(made) == list(SOURCES) and len(records.read(out)) == 2
    for row, splits in (("MS-COCO", 2), ("Flickr8k", 3)):
        record = made[row]
        assert (record.kind, record.status, record.n) == ("words", "other data", 4 * splits)
        # of a split's 15 words 4 are determiners, and two occur once
        assert record.values["words"] == 15 * splits
        assert record.values["words counted"] == 9 * splits
        assert record.values[OF_ALL] == pytest.approx(100 * 9 / 15)
        assert record.values[OF_COUNTED] == 100
        assert record.details.commonest == [("cat", 5 * splits), ("dog", 4 * splits)]
    (cell,) = tables.cells("lstm_readonly", made.values(), "words")
    assert cell.paper == 40.5 and cell.ours == made["MS-COCO"].values[OF_ALL]


def test_without_data_the_folder_is_asked_for(tmp_path, capsys):
    out = tmp_path / "words.jsonl"
    assert main(["reproduce", "lstm_readonly", "--table", "words", "--out", str(out)]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "no data folder, expected one with coco_karpathy" in said
    assert not out.exists()
