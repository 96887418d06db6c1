"""Faults of what is drawn, shown and counted for figures and tables of examples."""

from __future__ import annotations

from tests.faults.plant import Fault

FIGURES = (
    Fault(
        "rare words counted",
        "words that occur once stand among those that the paper counts",
        "benchmarks.papers.lstm_readonly.words:count",
        "if times < MIN_COUNT",
        "if times < 1",
        "test_words.py::test_every_word_is_counted_or_left_out_for_one_reason",
    ),
    Fault(
        "boxes a pixel short",
        "the last row and column of a detection get no heat",
        "benchmarks.report.drawings.attention:heat",
        "max(y - half, 0) : y + half + 1",
        "max(y - half, 0) : y + half",
        "test_report_attention.py::test_the_heat_of_a_pixel_is_the_weight_of_the_boxes_that_cover_it",
    ),
    Fault(
        "captions of other seeds",
        "models are laid side by side that saw different data",
        "benchmarks.papers.paired:shared",
        "of_row[seed] for of_row",
        "next(iter(of_row.values())) for of_row",
        "test_report_examples.py::test_only_what_all_rows_have_is_shown_and_of_one_seed",
    ),
    Fault(
        "settled by few seeds",
        "a difference of one seed is called better",
        "benchmarks.statistics:Interval.settled",
        "self.enough and",
        "",
        "test_report_tables.py::test_a_table_agrees_or_opposes_only_where_enough_seeds_settle_it",
    ),
    Fault(
        "a claim of few seeds",
        "a claim is supported by two seeds",
        "benchmarks.papers.claims:_compared",
        "from_bound is None or from_bound.enough",
        "True",
        "test_claims.py::test_what_says_too_little_settles_nothing",
    ),
    Fault(
        "unpaired seeds",
        "the seeds of one side are compared with other seeds of the other",
        "benchmarks.papers.paired:shared",
        "of_row[seed] for of_row",
        "list(of_row.values())[seeds.index(seed)] for of_row",
        "test_paired.py::test_a_difference_is_that_of_the_shared_seeds_alone",
    ),
)
