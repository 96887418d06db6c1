"""ARNet's section: a regulariser against its own baseline, equal seeds; figures where recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import papers
from benchmarks.kinds import Captions, Details, Digits, Discrepancy, Example, States
from benchmarks.papers import paired
from benchmarks.papers.arnet import digits, hidden_states, reconstruction_weight
from benchmarks.papers.arnet.captions import ADDED, BASELINES
from benchmarks.records import Record
from benchmarks.report.document import (
    Figure,
    Paragraph,
    Section,
    Table,
)
from benchmarks.report.sections import arnet as section
from benchmarks.statistics import SEEDS
from tests.support.records import altered
from tests.support.records import record as a_record

BASELINE, OTHER = BASELINES
IMAGES = 5
STAGES = [
    {"sampling": 0.05, "most_sampling": 0.25, "optimisation": {"epochs": epochs}}
    for epochs in (15, 4)
]


def record(
    kind: type[Details], table: str, row: str, seed: int, values: dict[str, float], **details: Any
) -> Record:
    of = {"paper": "arnet", "table": table, "row": row, "n": IMAGES, "seeds": [seed]}
    return a_record(kind, values, **of, key=f"{table}{row}{seed}", **details)


def scored(row: str, seed: int, cider_d: Sequence[float], table: str = "1") -> Record:
    mean = float(np.mean(cider_d))
    validations = [{"CIDEr-D": mean}]
    values = {"CIDEr-D": 100 * mean, "B4": 50 * mean}
    details = {"cider_d": list(cider_d), "validations": validations, "stages": STAGES}
    return record(Captions, table, row, seed, values, **details)


def apart(row: str, seed: int, shares: Sequence[float]) -> Record:
    values = dict.fromkeys(("d_mc", "d_pw"), float(np.mean(shares)))
    return record(
        Discrepancy, "2", row, seed, values, shares={name: list(shares) for name in values}
    )


def rows_of(found: Section, name: str) -> dict[tuple[Any, ...], Sequence[Any]]:
    """A table's rows, by their first two cells."""
    (table,) = (b for b in found.blocks if isinstance(b, Table) and b.name == name)
    return {tuple(row[:2]): row for row in table.rows}


@settings(max_examples=8)
@given(
    st.lists(st.lists(st.floats(0, 5), min_size=IMAGES, max_size=IMAGES), min_size=1, max_size=4),
    st.integers(1, 999),
    st.sampled_from(ADDED[1:]),
    st.booleans(),
)
def test_a_constant_gain_is_said_of_three_seeds_and_of_its_own_baseline(
    base: list[list[float]], thousandths: int, added: str, lost: bool
) -> None:
    # as many digits as are printed
    sign, gain = -1 if lost else 1, thousandths / 1000
    made = []
    for seed, scores in enumerate(base):
        shifted = [score + sign * gain for score in scores]
        for row, values in ((BASELINE, scores), (BASELINE + added, shifted)):
            made += [scored(row, seed, values), apart(row, seed, values)]
        # the other baseline's: it must not be compared with this one
        made.append(scored(OTHER, seed, [score + 9 for score in scores]))
    rows = rows_of(section.arnet(made, {}), "arnet-scenes-1-2")
    (row,) = rows.values()
    assert row[:3] == [BASELINE, added.removeprefix(" + "), len(base)]
    score, d_mc, d_pw = row[4::2]
    words = ("worse", "smaller") if lost else ("better", "larger")
    words = words if len(base) >= SEEDS else ("too few seeds",) * 2
    assert score.startswith(f"{100 * sign * gain:+.1f} (") and score.endswith(f": {words[0]}")
    assert d_mc == d_pw and d_mc.startswith(f"{sign * gain:+.3f} (")
    assert d_mc.endswith(f": {words[1]}")


def test_the_paper_s_change_stands_beside_ours() -> None:
    made = [scored(row, 0, [1.0] * IMAGES) for row in (BASELINE, f"{BASELINE} + ARNet")]
    (row,) = rows_of(section.arnet(made, {}), "arnet-scenes-1-2").values()
    printed = papers.load("arnet").table("1")
    ours, base = (printed.cell(name, "CIDEr-D").value for name in (f"{BASELINE} + ARNet", BASELINE))
    assert isinstance(ours, float)
    assert isinstance(base, float)
    assert row[3] == f"{100 * (ours - base):+.1f}"
    # nothing was measured of the distances
    assert row[6] == row[8] == ""


def test_how_much_was_sampled_is_said() -> None:
    def said(row: str) -> str:
        found = section.arnet([scored(row, 0, [1.0] * IMAGES)], {}).blocks
        return " ".join(b.text for b in found if isinstance(b, Paragraph))

    assert "with probability 25% in the first stage and 15% in the second" in said(
        f"{BASELINE} + Scheduled Sampling"
    )
    assert "sampling" not in said(BASELINE).lower()


@given(seeds=st.lists(st.lists(st.sampled_from("ab"), max_size=4), min_size=1, max_size=3))
def test_captions_that_do_not_depend_on_their_source_are_said_to(seeds: list[list[str]]) -> None:
    made = [
        altered(
            scored(BASELINE, seed, [1.0] * IMAGES, "3"),
            examples=[Example(image=0, caption=caption, reference="r") for caption in captions],
        )
        for seed, captions in enumerate(seeds)
    ]
    blocks = section.arnet(made, {}).blocks
    said = any("a constant" in block.text for block in blocks if isinstance(block, Paragraph))
    assert said == all(len(captions) > 1 and len(set(captions)) == 1 for captions in seeds)


def test_other_seeds_are_not_paired() -> None:
    made = [scored(BASELINE, 0, [1.0] * IMAGES), scored(f"{BASELINE} + ARNet", 1, [2.0] * IMAGES)]
    (row,) = rows_of(section.arnet(made, {}), "arnet-scenes-1-2").values()
    assert row[2] == 0 and row[4] == ""


def test_code_is_judged_by_what_the_paper_judges_it_by() -> None:
    made = [
        scored(row, seed, [value] * IMAGES, "3")
        for seed in range(3)
        for row, value in ((BASELINE, 0.5), (f"{BASELINE} + ARNet", 0.7))
    ]
    (row,) = rows_of(section.arnet(made, {}), "arnet-scenes-3-4").values()
    assert row[4] == "+10.0 (+10.0 to +10.0): better"


def test_digits_stand_against_the_lstm_without_a_regulariser() -> None:
    gains = {digits.PLAIN: 0.0, digits.ARNET: 0.02, "LSTM + zoneout": -0.01}
    # only with the last seed the last epoch is the best
    validated = [[0.1, 0.3, 0.2], [0.4, 0.1, 0.3], [0.1, 0.2, 0.3]]
    made = [
        record(
            Digits,
            "5",
            row,
            seed,
            {"test accuracy": 50 + 10 * seed + 100 * gain},
            epochs=[1, 2],
            history=[{"val": accuracy} for accuracy in validated[seed]],
        )
        for seed in range(3)
        for row, gain in gains.items()
    ]
    found = {row[0]: row for row in rows_of(section.arnet(made, {}), "arnet-scenes-5").values()}
    assert list(found) == list(digits.ROWS)
    assert found[digits.PLAIN][4:6] == ["60.0 ± 10.0", ""]
    assert found[digits.ARNET][2] == "+1.9" and found[digits.ARNET][5].endswith(": better")
    assert found["LSTM + zoneout"][5].startswith("-1.0 (-1.0 to -1.0): worse")
    assert found["LSTM + recurrent dropout"][-1] == "not run"
    (table,) = (
        b for b in section.arnet(made, {}).blocks if isinstance(b, Table) and "-5" in b.name
    )
    assert "Of 9 trainings of 3 epochs the last epoch validates best in 3" in table.caption
    alone = section.arnet([r for r in made if r.seeds == [0]], {})
    words = {row[0]: row[5] for row in rows_of(alone, "arnet-scenes-5").values()}
    assert words["LSTM + zoneout"] == "-1.0: too few seeds"


def weights(seeds: int) -> list[Record]:
    return [
        scored(row, seed, [1 + weight] * IMAGES, reconstruction_weight.TABLE)
        for seed in range(seeds)
        for row, weight in reconstruction_weight.ROWS.items()
    ]


def points(seed: int) -> list[Record]:
    random = np.random.default_rng(seed)
    of_modes = {mode: random.normal(size=(3, 2)).tolist() for mode in hidden_states.MODES}
    return [
        record(
            States,
            hidden_states.TABLE,
            row,
            seed,
            {"d_mc": 0.1, "d_pw": 0.2},
            points=of_modes,
            perplexity=2.0,
        )
        for row in hidden_states.ROWS
    ]


def test_lambdas_are_in_the_paper_s_order_each_against_none() -> None:
    found = section.arnet(weights(3)[::-1], {})
    (table,) = (b for b in found.blocks if isinstance(b, Table) and b.name.endswith("lambda"))
    assert [row[0] for row in table.rows] == list(reconstruction_weight.ROWS)
    assert [row[3].partition(" ")[0] for row in table.rows[1:]] == [
        f"{100 * weight:+.1f}" for weight in reconstruction_weight.WEIGHTS[1:]
    ]
    assert table.rows[0][3] == "" and all(row[3].endswith("better") for row in table.rows[1:])


@pytest.mark.parametrize(("name", "made"), [("4", points(0)), ("5", weights(1))])
def test_a_figure_is_drawn_where_its_records_are(name: str, made: list[Record]) -> None:
    found, again = (section.arnet(made, {}) for _ in range(2))
    drawn, redrawn = ([b for b in s.blocks if isinstance(b, Figure)] for s in (found, again))
    assert [figure.name for figure in drawn] == [f"arnet-{name}-scenes"]
    assert drawn == redrawn
    (lead,) = (b for b in found.blocks[:1] if isinstance(b, Paragraph))
    assert paired.RULE in lead.text
