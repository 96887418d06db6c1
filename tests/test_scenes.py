"""The embedded scenes: the same bytes everywhere, disjoint splits, and captions that are true."""

import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.data import scenes
from benchmarks.data.scenes.layout import CANVAS, COLOURS, PLACES, SHAPES, Draw, Group, Scene, Thing
from benchmarks.data.scenes.pictures import GROUNDS, PALETTE
from benchmarks.errors import InputError

FINGERPRINT = "f95a926350e218666653964c22d07b4062608d5e3d3e8be31328a6303074b5b9"
"""Of ``make(seed=0, train=40, val=10, test=10)``: other captions or features are other data."""

# what a reader takes the words to mean, written down apart from the grammar that uses them
NOUNS = {
    "ball": "ball balls sphere spheres",
    "box": "box boxes block blocks square squares",
    "triangle": "triangle triangles pyramid pyramids",
    "star": "star stars",
    "cross": "cross crosses plus pluses",
    "ring": "ring rings hoop hoops",
}
COLOUR_WORDS = {
    **{colour: colour for colour in COLOURS},
    "red": "red crimson",
    "purple": "purple violet",
    "black": "black dark",
}
SIZE_WORDS = {"small": "small little tiny", "large": "large big huge"}
DOING = {
    "rolling": "rolling tumbling",
    "jumping": "jumping hopping leaping",
    "spinning": "spinning turning",
    "resting": "resting lying sitting",
}
GROUND = {"grass": "grass field lawn", "snow": "snow ground", "sand": "sand beach"}
GROUND["water"] = "water lake"
WHERE = {"left": "left", "right": "right", "above": "above over", "below": "below under beneath"}
COUNTS = {
    "a": {1},
    "an": {1},
    "one": {1},
    "two": {2},
    "a pair of": {2},
    "a couple of": {2},
    "three": {3},
    "four": {4},
    "several": {3, 4, 5},
    "a group of": {3, 4, 5},
}


def alternatives(table):
    return "|".join(" ".join(table.values()).split())


def meaning(word, table):
    return next(value for value, words in table.items() if word in words.split())


def phrase(name):
    count = "|".join(sorted(COUNTS, key=len, reverse=True))
    return (
        rf"(?P<{name}_count>{count})( (?P<{name}_size>{alternatives(SIZE_WORDS)}))?"
        rf"( (?P<{name}_colour>{alternatives(COLOUR_WORDS)}))?"
        rf" (?P<{name}_noun>{alternatives(NOUNS)})"
    )


SENTENCE = re.compile(
    rf"(there (?P<there>is|are) )?{phrase('one')}( (?P<be>is|are))?"
    rf"( (?P<doing>{alternatives(DOING)}))?"
    rf"( ((to the )?(?P<side>left|right) of|(?P<over>above|over|below|under|beneath)) "
    rf"{phrase('other')}"
    rf"| and {phrase('beside')} (?P<doing_too>{alternatives(DOING)}))?"
    rf"( and {phrase('also')})?"
    rf"( (in|on|at) (the|a)( (green|snowy))? (?P<ground>\w+))?"
)


def described(found, name, groups):
    """The groups that a noun phrase may mean."""
    count, size, colour, noun = (
        found[f"{name}_{part}"] for part in ("count", "size", "colour", "noun")
    )
    return [
        group
        for group in groups
        if group.shape == meaning(noun, NOUNS)
        and len(group.things) in COUNTS[count]
        and (size is None or group.size == meaning(size, SIZE_WORDS))
        and (colour is None or group.colour == meaning(colour, COLOUR_WORDS))
    ]


def lies(side, group, other):
    """Whether all of ``group`` lies to one side of all of ``other``, by the pixels."""
    if side in ("left", "above"):
        axis = "x" if side == "left" else "y"
        return max(getattr(t, axis) for t in group.things) < min(
            getattr(t, axis) for t in other.things
        )
    return lies({"right": "left", "below": "above"}[side], other, group)


def assert_true_of(scene, caption):
    """Parse a caption, and find groups of the scene that make all of it true at once."""
    assert re.fullmatch(r"[A-Z][a-z ]+\.", caption)
    found = SENTENCE.fullmatch(caption[:-1].lower())
    assert found, f"not a sentence of the grammar: {caption}"
    plural = COUNTS[found["one_count"]] != {1}
    for verb in ("there", "be"):
        assert found[verb] in (None, "are" if plural else "is"), caption
    for name in ("one", "other", "beside", "also"):
        if found[f"{name}_noun"]:
            noun, count = found[f"{name}_noun"], found[f"{name}_count"]
            many = COUNTS[count] != {1}
            forms = NOUNS[meaning(noun, NOUNS)].split()
            assert forms.index(noun) % 2 == many, caption
            follower = found[f"{name}_size"] or found[f"{name}_colour"] or noun
            if count in ("a", "an"):
                assert (count == "an") == (follower[0] in "aeiou"), caption
    if found["ground"]:
        assert meaning(found["ground"], GROUND) == scene.place, caption

    readings = []
    for group in described(found, "one", scene.groups):
        if found["doing"] and group.action != meaning(found["doing"], DOING):
            continue
        rest = [other for other in scene.groups if other is not group]
        if found["other_noun"]:
            side = meaning(found["side"] or found["over"], WHERE)
            rest_of = [o for o in described(found, "other", rest) if lies(side, group, o)]
        elif found["beside_noun"]:
            doing = meaning(found["doing_too"], DOING)
            rest_of = [o for o in described(found, "beside", rest) if o.action == doing]
        else:
            rest_of = [None]
        for other in rest_of:
            third = [g for g in rest if g is not other]
            if not found["also_noun"] or described(found, "also", third):
                readings.append((group, other))
    assert readings, f"not true: {caption} {scene}"


@pytest.fixture(scope="module")
def data():
    return scenes.make(seed=0, train=40, val=10, test=10)


def test_the_data_are_those_that_were_recorded(data):
    assert data.fingerprint == FINGERPRINT


def test_another_process_makes_the_same_data_whatever_its_hash_seed(data):
    program = "from benchmarks.data import scenes; print(scenes.make(0, 40, 10, 10).fingerprint)"
    output = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONHASHSEED": "123", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert output.stdout.strip() == data.fingerprint


def test_other_seeds_and_sizes_are_other_data(data):
    prints = [scenes.make(1, 40, 10, 10), scenes.make(0, 41, 10, 10), scenes.make(0, 40, 10, 11)]
    assert len({data.fingerprint, *(d.fingerprint for d in prints)}) == 4


def test_a_split_does_not_depend_on_the_size_of_another(data):
    larger = scenes.make(seed=0, train=60, val=10, test=10)
    for name in ("val", "test"):
        assert larger.splits[name].references == data.splits[name].references
        here, there = larger.splits[name].store, data.splits[name].store
        assert here.fingerprint == there.fingerprint
    assert larger.splits["train"].image_ids[:40] == data.splits["train"].image_ids


@given(st.integers(0, 50))
def test_splits_are_disjoint_in_ids_scenes_and_captions_of_an_image(seed):
    data = scenes.make(seed, 6, 3, 3)
    splits = data.splits.values()
    ids = [i for split in splits for i in split.image_ids]
    assert len(set(ids)) == 12
    assert len({scenes.scene(seed, i) for i in ids}) == 12
    assert len({tuple(split.references[i]) for split in splits for i in split.image_ids}) == 12


@given(st.integers(0, 10**6), st.integers(0, 3 * 10**6))
def test_every_reference_is_grammatical_and_true_of_its_scene(seed, image_id):
    scene = scenes.scene(seed, image_id)
    references = scenes.captions(scene, Draw(seed, image_id, 1), 5)
    assert len(set(references)) == 5
    for caption in references:
        assert_true_of(scene, caption)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("red", "blue"),
        ("two", "three"),
        ("balls", "boxes"),
        ("large", "small"),
        ("left", "right"),
        ("rolling", "jumping"),
        ("snow", "sand"),
        ("a star", "an star"),
        ("are", "is"),
    ],
)
def test_the_reader_of_captions_finds_what_is_false(right, wrong):
    ball = {"shape": "ball", "colour": "red", "size": "large", "action": "rolling"}
    star = {"shape": "star", "colour": "green", "size": "small", "action": "resting"}
    scene = Scene(
        "snow",
        (
            Group(**ball, things=(Thing(8, 8, 6), Thing(8, 40, 6))),
            Group(**star, things=(Thing(40, 24, 4),)),
        ),
    )
    caption = "Two large red balls are rolling to the left of a star in the snow."
    assert_true_of(scene, caption)
    changed = caption.lower().replace(right, wrong).capitalize()
    with pytest.raises(AssertionError):
        assert_true_of(scene, changed)


@given(st.integers(0, 10**6))
def test_a_scene_lies_within_its_canvas_and_no_two_things_share_a_cell(image_id):
    scene = scenes.scene(3, image_id)
    things = [thing for group in scene.groups for thing in group.things]
    assert 2 <= len(scene.groups) <= 3 and 2 <= len(things) <= 7
    assert len({(group.shape, group.colour) for group in scene.groups}) == len(scene.groups)
    assert scene.groups[0].relations(scene.groups[1])
    assert len({(thing.x // 16, thing.y // 16) for thing in things}) == len(things)
    assert all(0 <= t.x < CANVAS and 0 <= t.y < CANVAS for t in things)


@given(st.integers(0, 10**6))
def test_things_are_detected_repeatedly_and_features_are_exact(image_id):
    scene = scenes.scene(0, image_id)
    features, boxes = scenes.detections(scene, Draw(0, image_id, 2))
    things = sum(len(group.things) for group in scene.groups)
    assert features.dtype == np.float32 and features.shape[1] == 64
    assert len(scene.groups) + 1 <= len(features) <= 4 * things + 2
    fixed_point = features.astype(np.float64) * 512
    np.testing.assert_array_equal(fixed_point, np.round(fixed_point))
    again, _ = scenes.detections(scene, Draw(0, image_id, 2))
    assert features.tobytes() == again.tobytes()
    # a box is the whole picture's, or lies about one thing
    assert len(boxes) == len(features)
    everything = [thing for group in scene.groups for thing in group.things]
    whole = CANVAS // 2, CANVAS // 2, CANVAS // 2
    found = [box for box in boxes if box != whole]
    assert 1 <= len(boxes) - len(found) <= 2
    for box in found:
        of_thing = ((t.x, t.y, t.radius) for t in everything)
        assert any(max(abs(a - b) for a, b in zip(box, t, strict=True)) <= 2 for t in of_thing)


def test_the_number_of_rows_does_not_give_the_number_of_things_away():
    counts = {}
    for i in range(150):
        scene = scenes.scene(0, i)
        rows = len(scenes.detections(scene, Draw(0, i, 2))[0])
        counts.setdefault(rows, set()).add(sum(len(group.things) for group in scene.groups))
    assert len(counts[8]) >= 3, "scenes of several sizes have eight detections"


def test_features_carry_what_captions_say():
    """A linear reading of the mean row tells places, shapes and colours far above chance."""
    drawn = {i: scenes.scene(0, i) for i in range(900)}
    rows = np.stack(
        [
            np.append(scenes.detections(s, Draw(0, i, 2))[0].mean(axis=0), 1)
            for i, s in drawn.items()
        ]
    )
    for values, attribute in ((SHAPES, "shape"), (COLOURS, "colour")):
        truth = [values.index(getattr(s.groups[0], attribute)) for s in drawn.values()]
        weights = np.linalg.lstsq(rows[:600], np.eye(len(values))[truth[:600]], rcond=None)[0]
        right = (rows[600:] @ weights).argmax(axis=1) == truth[600:]
        assert 2 / len(values) < right.mean() < 0.9


def test_pictures_show_every_group_in_its_colour_on_its_place():
    seen = set()
    for i in range(60):
        scene = scenes.scene(0, i)
        picture = scenes.render(scene)
        assert picture.shape == (64, 64, 3) and picture.dtype == np.uint8
        colours = {tuple(pixel) for pixel in picture.reshape(-1, 3).tolist()}
        assert GROUNDS[scene.place] in colours
        for group in scene.groups:
            assert PALETTE[group.colour] in colours
            seen |= {group.shape, group.colour}
        seen.add(scene.place)
    assert seen == {*SHAPES, *COLOURS, *PLACES}


def test_the_vocabulary_is_of_the_training_captions(data):
    assert len(data.vocabulary) > 50
    assert {"a", "two", "red", "rolling"} <= set(data.vocabulary.words)


@pytest.mark.parametrize("options", [{"seed": -1}, {"train": 0}, {"val": -3}, {"test": 10**6 + 1}])
def test_sizes_that_cannot_be_are_named(options):
    with pytest.raises(InputError, match=f"scenes: {next(iter(options))} is"):
        scenes.make(**{"train": 2, "val": 2, "test": 2} | options)
