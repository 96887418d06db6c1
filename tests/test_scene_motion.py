"""The moving scenes: the same bytes everywhere, captions that are true of what moves."""

import re

import numpy as np
import pytest

from benchmarks.data.scenes import FIRST_ID, motion
from benchmarks.data.scenes.layout import COLOURS, Draw
from benchmarks.errors import InputError

FINGERPRINT = "c7b6e9b130b857c9f3116693ec141493c6bf3acc33b2ef6f5cdeb31d16e5b8ff"
"""Of ``make(seed=0, train=40, val=10, test=10)``: other captions or features are other data."""

# what a reader takes the words to mean, written down apart from the grammar that uses them
SHAPES = "ball|box|triangle|star|cross|sphere|block|pyramid|plus"
NOUNS = {"sphere": "ball", "block": "box", "pyramid": "triangle", "plus": "cross"}
COLOUR_WORDS = {"crimson": "red", "violet": "purple", "dark": "black"}
SENTENCE = re.compile(
    rf"(?:a|an|one)(?: (?P<colour>\w+))? (?P<noun>{SHAPES})"
    r"(?: is)? (?P<doing>\w+ing)"
    r"(?: (?P<where>to the (?:left|right|top|bottom)|up and down))?(?P<rest> .+)?"
)
WAYS = {
    "to the left": (-1, 0),
    "to the right": (1, 0),
    "to the top": (0, -1),
    "to the bottom": (0, 1),
}
CHANGES = {"growing": 1, "swelling": 1, "shrinking": -1, "fading": -1, "resting": 0, "waiting": 0}


@pytest.fixture(scope="module")
def data():
    return motion.make(seed=0, train=40, val=10, test=10)


def assert_shows(path, doing, where):
    """The path of an object goes where the caption says."""
    steps = np.diff(np.array(path), axis=0)
    if where == "up and down":
        assert set(np.sign(steps[:, 1])) == {-1, 1} and not steps[:, [0, 2]].any()
    elif where:
        assert (np.sign(steps[:, :2]) == WAYS[where]).all() and not steps[:, 2].any()
    else:
        assert not steps[:, :2].any()
        assert np.sign(steps[:, 2].sum()) == CHANGES[doing]


def test_the_data_are_those_that_were_recorded(data):
    assert data.fingerprint == FINGERPRINT and data.name == "moving scenes"


def test_a_split_does_not_depend_on_the_size_of_another_but_on_the_seed(data):
    larger = motion.make(seed=0, train=41, val=10, test=10)
    assert larger.splits["test"].references == data.splits["test"].references
    for name in ("val", "test"):
        here, there = larger.splits[name].store, data.splits[name].store
        assert here.fingerprint == there.fingerprint
    assert motion.make(seed=1, train=40, val=10, test=10).fingerprint != data.fingerprint


def test_captions_are_true_of_an_object_and_have_one_verb_or_none(data):
    without, total = 0, 0
    for split, part in data.splits.items():
        for image_id, captions in part.references.items():
            assert image_id >= FIRST_ID[split] and len(set(captions)) == 5
            scene = motion.clip(0, image_id)
            for caption in captions:
                assert re.fullmatch(r"[A-Z][a-z ]+\.", caption)
                text = caption[:-1].lower()
                verbs, total = re.findall(r"\w+ing\b", text), total + 1
                if text.startswith("there is"):
                    assert not verbs
                    without += 1
                    continue
                found = SENTENCE.fullmatch(text)
                assert found and verbs == [found["doing"]], caption
                noun = NOUNS.get(found["noun"], found["noun"])
                (mover,) = (m for m in (scene.first, scene.second) if m.shape == noun)
                if found["colour"]:
                    assert COLOUR_WORDS.get(found["colour"], found["colour"]) == mover.colour
                assert_shows(mover.path, found["doing"], found["where"])
    assert 0 < without < total / 4


def test_both_objects_differ_in_shape_and_in_what_they_do():
    for image_id in range(200):
        scene = motion.clip(7, image_id)
        assert scene.first.shape != scene.second.shape
        assert scene.first.motion != scene.second.motion
        assert len(scene.first.path) == len(scene.second.path)


def test_frames_tell_apart_what_a_single_frame_does_not():
    """The way an object goes is linear in the last frame less the first, and in neither alone."""
    scenes = [motion.clip(0, i) for i in range(800)]
    rows = [motion.frames(scene, Draw(0, i, 12)) for i, scene in enumerate(scenes)]
    paths = np.array([[(m.path[0], m.path[-1]) for m in (s.first, s.second)] for s in scenes])
    ways = paths[:, :, 1, 0] - paths[:, :, 0, 0]

    def explained(x):
        x = np.concatenate([x, np.ones((len(x), 1))], 1)
        found = x[400:] @ np.linalg.lstsq(x[:400], ways[:400], rcond=None)[0]
        return 1 - ((found - ways[400:]) ** 2).sum() / (ways[400:] ** 2).sum()

    first, last = np.array([r[0] for r in rows]), np.array([r[-1] for r in rows])
    assert explained(last - first) > 0.5 > 2 * max(explained(first), explained(last))


def test_features_are_exact_in_single_precision_and_a_row_a_frame(data):
    part = data.splits["train"]
    for image_id in part.image_ids:
        rows = part.store.features(image_id)
        frames = len(motion.clip(0, image_id).first.path)
        assert rows.shape == (frames, motion.D_FEATURE) and rows.dtype == np.float32
        exact = rows * 2 * motion.UNIT
        assert (exact == np.rint(exact)).all() and abs(exact).max() < 2**24


def test_every_colour_is_said():
    said = " ".join(
        caption
        for i in range(200)
        for caption in motion.captions(motion.clip(0, i), Draw(0, i, 11), 5)
    )
    assert all(colour in said for colour in COLOURS)


def test_bad_sizes_are_named():
    with pytest.raises(InputError, match="moving scenes: seed is -1, expected at least 0"):
        motion.make(seed=-1)
    with pytest.raises(InputError, match="moving scenes: val is 0 images, expected 1 to"):
        motion.make(val=0)
