"""Middle words: every image's commonest, captions that begin with one, and what is left out."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.data import CaptionData, Split
from benchmarks.data.features import ArrayFeatures
from benchmarks.data.middle_words import WithWord, choose
from benchmarks.data.vocabulary import END_ID, PAD_ID, Vocabulary
from benchmarks.errors import InputError

WORDS = st.sampled_from(["a", "dog", "running", "sitting", "ring", "and"])
CAPTIONS = st.lists(st.lists(WORDS, min_size=1, max_size=6), min_size=1, max_size=4)


def data_of(captions, known):
    """A data set whose vocabulary has the words ``known``."""
    splits, image_id = {}, 0
    for name, images in captions.items():
        ids = range(image_id, image_id := image_id + len(images))
        features = ArrayFeatures({i: np.full((2, 3), float(i)) for i in ids})
        texts = {i: [" ".join(c) for c in each] for i, each in zip(ids, images, strict=True)}
        splits[name] = Split(list(ids), texts, features)
    return CaptionData("drawn", "fingerprint", Vocabulary(tuple(known.split())), splits)


DATA = st.builds(
    data_of,
    st.fixed_dictionaries(
        {name: st.lists(CAPTIONS, min_size=1, max_size=4) for name in ("train", "test")}
    ),
    st.sampled_from(["a dog running sitting ring and", "a dog running and"]),
)


def candidates_in(data, text):
    return [w for w in text.split() if w.endswith("ing") and w in data.vocabulary.words]


@given(DATA, st.integers(1, 3))
def test_an_image_s_word_is_its_commonest_and_what_has_none_is_left_out(data, most):
    having = {
        name: [i for i in s.image_ids if any(candidates_in(data, t) for t in s.references[i])]
        for name, s in data.splits.items()
    }
    if not all(having.values()):
        with pytest.raises(InputError, match=r"no image of the split '(train|test)' has a caption"):
            choose(data)
        return
    found = choose(data, most)
    for name, part in found.data.splits.items():
        assert part.image_ids == list(part.references) == having[name]
        assert found.left_out[name] == len(data.splits[name].image_ids) - len(having[name])
        for image_id in part.image_ids:
            texts = data.splits[name].references[image_id]
            words = [word for text in texts for word in candidates_in(data, text)]
            assert words.count(found.of_image[image_id]) == max(map(words.count, words))
            kept = [text for text in texts if name != "train" or candidates_in(data, text)]
            assert part.references[image_id] == kept
    before = sum(len(data.splits["train"].references[i]) for i in having["train"])
    after = sum(map(len, found.data.splits["train"].references.values()))
    assert found.left_out["captions"] == before - after
    counts = [found.of_image[i] for i in having["train"]]
    assert len(found.candidates) == min(most, len(set(counts)))
    chosen = [counts.count(word) for word in found.candidates]
    assert min(chosen) >= max(
        (counts.count(word) for word in set(counts) - set(found.candidates)), default=0
    )
    assert found.data.fingerprint != data.fingerprint


@given(DATA, st.integers(1, 9))
def test_a_caption_to_learn_is_the_caption_from_its_middle(data, most):
    try:
        found = choose(data)
    except InputError:
        return
    for image_id, texts in found.data.splits["train"].references.items():
        for text in texts:
            tokens = found.encode(image_id, text, most)
            ids = data.vocabulary.encode(text.split())[1:-1]
            word = data.vocabulary.words[tokens[0] - 4]
            assert word in candidates_in(data, text)
            if found.of_image[image_id] in text.split():
                assert word == found.of_image[image_id]
            left, right = ([t for t in tokens[side::2] if t != PAD_ID] for side in (1, 2))
            assert max(len(left), len(right)) <= most
            place = ids.index(tokens[0])
            assert left == [*reversed(ids[:place]), END_ID][:most]
            assert right == [*ids[place + 1 :], END_ID][:most]


def words_of_two():
    captions = {"train": [[["a", "dog", "running"]]], "test": [[["sitting"]]]}
    return choose(data_of(captions, "a dog running sitting"))


def test_a_word_outside_the_vocabulary_is_named():
    with pytest.raises(InputError, match="middle word 'flying': not in the vocabulary of 8 words"):
        words_of_two().id_of("flying")


def test_a_store_with_words_has_them_in_its_last_column():
    words = words_of_two()
    store = words.data.splits["train"].store
    ids = {0: words.id_of("running")}
    given = WithWord(store, ids)
    rows = given.features(0)
    assert rows.shape == (2, 4) and rows.dtype == np.float32
    assert (rows[:, :3] == store.features(0)).all() and (rows[:, 3] == ids[0]).all()
    assert (given.d_feature, given.image_ids) == (store.d_feature + 1, store.image_ids)
    assert given.fingerprint != WithWord(store, {0: words.id_of("dog")}).fingerprint
    assert replace(words, of_image={}).data is words.data
