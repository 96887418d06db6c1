"""Faults of what is drawn, shown and counted for figures and tables of examples."""

from __future__ import annotations

from tests.faults.plant import Fault

EXAMPLES = "test_read_only.py::test_only_what_all_rows_have_is_shown_and_of_one_seed"

FIGURES = (
    Fault(
        "rare words counted",
        "words that occur once stand among those that the paper counts",
        "benchmarks.experiments.words:count",
        "if times < MIN_COUNT",
        "if times < 1",
        "test_words.py::test_every_word_is_counted_or_left_out_for_one_reason",
    ),
    Fault(
        "areas by rank",
        "a rectangle is cut in halves whatever its weights are",
        "benchmarks.report.treemap:treemap",
        "left, bottom, width * share, height",
        "left, bottom, width * 0.5, height",
        "test_words.py::test_areas_are_in_proportion_and_tile_the_whole",
    ),
    Fault(
        "boxes a pixel short",
        "the last row and column of a detection get no heat",
        "benchmarks.report.sections.attention:heat",
        "max(y - half, 0) : y + half + 1",
        "max(y - half, 0) : y + half",
        "test_attention_figures.py::test_the_heat_of_a_pixel_is_the_weight_of_the_boxes_that_cover_it",
    ),
    Fault(
        "captions of other seeds",
        "models are laid side by side that saw different data",
        "benchmarks.report.sections.examples:of_one_seed",
        "of_row[min(shared)]",
        "next(iter(of_row.values()))",
        EXAMPLES,
    ),
)
