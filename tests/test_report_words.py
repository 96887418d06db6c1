"""The page of how often words occur: both figures."""

from benchmarks import records
from benchmarks.kinds import Words
from benchmarks.papers.lstm_readonly import words
from benchmarks.papers.lstm_readonly.words import OF_ALL, OF_COUNTED, SOURCES
from benchmarks.report.drawings import lstm_readonly as section


def record_of(row, counts, rest):
    shown = sum(times for _, times in counts)
    return records.make(
        Words(commonest=counts, left_out={}),
        paper=words.PAPER,
        table=words.TABLE,
        row=row,
        values={
            OF_ALL: 40.0,
            OF_COUNTED: 50.0,
            "words": float(shown + rest),
            "words counted": float(shown + rest),
            "different words counted": float(len(counts) + 1),
        },
        status="other data",
        key=row,
        n=7,
        data=records.Data(name=words.NAMES[row], fingerprint="f", split="test"),
    )


def test_the_figures_are_drawn_from_records_and_only_from_them():
    counts = [[f"w{i}", 200 - i] for i in range(100)]
    made = [record_of(row, counts, 5000) for row in SOURCES]
    assert not section.areas([]) and not section.bars([])
    drawn = [*section.areas(made), *section.bars(made)]
    assert len({figure.name for figure in drawn}) == 4
    for figure in section.areas(made):
        assert "1 other words" in figure.svg and ">w0<" in figure.svg
    for figure in section.bars(made):
        assert all((f">w{i}<" in figure.svg) == (i < section.BARS) for i in range(100))
