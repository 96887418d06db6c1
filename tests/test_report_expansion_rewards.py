"""The page of v1's Tables 2 and 4, v2's II and III: both stages, what each and an ensemble add."""

from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.kinds import Rewards
from benchmarks.papers.expansionnet_v2.rewards import V1, V2
from benchmarks.papers.paired import RULE
from benchmarks.records import Data
from benchmarks.report.sections.expansion_rewards import BASE
from benchmarks.report.sections.expansion_rewards import expansion_rewards as section
from benchmarks.statistics import SEEDS
from tests.support.pages import files as files_of
from tests.support.records import record as a_record

SINGLE, BOTH = "ExpansionNet_{64,16}", "ExpansionNet_{64,16} (ensemble of 2)"


def record(row, seeds, before, after, paper=V1, table="4", form="reduced"):
    values = {
        f"{stage} CIDEr-D": 100 * sum(scores) / len(scores)
        for stage, scores in (("XE", before), ("RL", after))
    }
    return a_record(
        Rewards,
        values,
        paper=paper,
        table=table,
        row=row,
        status="other data",
        key=f"{paper}{table}{row}{seeds}{form}",
        n=len(after),
        seeds=seeds,
        data=Data(name=f"photographs, {form}", fingerprint="f", split="test"),
        form=form,
        beam_size=3,
        cider_d=after,
        cross_entropy={"cider_d": before},
    )


def page(made):
    return files_of(section(made))


def line(files, name, row):
    (found,) = [x for x in files[name].splitlines() if x.startswith(f"| {row} |")]
    return found


NAME = "tables/expansionnet_v1-4-reduced.md"


def test_the_page_has_each_stage_and_forms_stand_apart():
    made = [
        record(SINGLE, [0], [1.0, 2.0], [3.0, 4.0]),
        record(SINGLE, [1], [1.0, 2.0], [5.0, 6.0]),
        record(SINGLE, [0], [9.0, 9.0], [9.0, 9.0], form="flickr8k"),
    ]
    files = page(made)
    assert "118.7 | 131.4 | 0, 1 | 150.0 ± 0.0 | 450.0 ± 100.0 |" in line(files, NAME, SINGLE)
    assert line(files, NAME, "ExpansionNet_{64,16} (ensemble of 4)").endswith("| not run |")
    assert "900.0" in line(files, "tables/expansionnet_v1-4-flickr8k.md", SINGLE)
    assert RULE in files["README.md"]


@settings(max_examples=10)
@given(st.integers(1, 4), st.integers(-9, 9), st.integers(-9, 9), st.integers(-9, 9))
def test_what_is_added_is_called_something_of_enough_seeds_and_of_an_ensemble(
    seeds, gain, above, together
):
    """By the second stage, by a model to the baseline, by an ensemble to its members."""
    before, after = [0.5, 1.5], [0.5 + gain / 10, 1.5 + gain / 10]
    ours = [score + above / 10 for score in after]
    made = [
        r
        for seed in range(seeds)
        for r in (record(BASE, [seed], before, after), record(SINGLE, [seed], after, ours))
    ]
    made.append(record(BOTH, [0, 1], ours, [score + together / 10 for score in ours]))
    # another seed's model is no member
    made.append(record(SINGLE, [9], ours, [99.0, 99.0]))
    files = page(made)

    def says(row, tenths, one=False):
        word = "better" if tenths > 0 else "worse" if tenths < 0 else "not settled"
        word = word if one or seeds >= SEEDS else "too few seeds"
        gap = f"{10 * tenths:+.1f}"
        return f"| {gap} ({gap} to {gap}): {word} |" in line(files, NAME, row)

    assert says(BASE, gain) and says(SINGLE, above)
    assert says(BOTH, together, one=True)


def test_an_ensemble_of_v2_is_held_against_the_table_of_single_models():
    made = [
        record("ExpansionNet v2", [0], [1.0] * 2, [2.0] * 2, V2, "II"),
        record("ExpansionNet v2", [0, 1, 2, 3], [1.0] * 2, [1.5] * 2, V2, "III"),
    ]
    found = line(page(made), "tables/expansionnet_v2-iii-reduced.md", "ExpansionNet v2")
    assert "| -50.0 (-50.0 to -50.0): worse |" in found


def test_without_records_the_page_says_how_to_get_them():
    assert "captionbench reproduce expansionnet_v2 --table III" in page([])["README.md"]
