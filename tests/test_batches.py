"""Training batches: every caption once an epoch, the same whenever asked, padded after its end."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.data import CaptionData, Split
from benchmarks.data.batches import CaptionBatches, ImageBatches, fetched_ahead, without_images
from benchmarks.data.features import ArrayFeatures
from benchmarks.data.vocabulary import END_ID, PAD_ID, START_ID, Vocabulary, tokenise
from benchmarks.errors import InputError

WORDS = ["a", "big", "red", "star", "and", "two", "blue", "boxes", "rolling"]

images = st.dictionaries(
    st.integers(0, 999),
    st.tuples(
        st.integers(1, 4),
        st.lists(st.lists(st.sampled_from(WORDS), max_size=7).map(" ".join), max_size=6),
    ),
    min_size=1,
    max_size=12,
).filter(lambda drawn: any(captions for _, captions in drawn.values()))
sizes = st.integers(1, 9)


def split_of(drawn):
    arrays = {i: np.full((rows, 3), i, np.float32) for i, (rows, _) in drawn.items()}
    references = {i: captions for i, (_, captions) in drawn.items()}
    return Split(list(drawn), references, ArrayFeatures(arrays))


def vocabulary_of(split):
    return Vocabulary.from_captions((c for cs in split.references.values() for c in cs), 1)


def batches_of(split, size, **options):
    return CaptionBatches(split, vocabulary_of(split), size, **{"max_length": 20, **options})


def pairs(batch):
    """The (image, caption) pairs of a batch: images are known by the value of their features."""
    for tokens, image in zip(batch.tokens.tolist(), batch.image_index.tolist(), strict=True):
        yield int(batch.features[image, 0, 0]), tuple(t for t in tokens if t != PAD_ID)


@given(drawn=images, size=sizes, group=sizes, window=sizes, seed=st.integers(0, 99))
def test_an_epoch_holds_every_caption_of_every_image_once(drawn, size, group, window, seed):
    split = split_of(drawn)
    batches = batches_of(split, size, captions_per_image=group, window=window, seed=seed)
    vocabulary = vocabulary_of(split)
    expected = Counter(
        (image, tuple(vocabulary.encode(tokenise(caption))))
        for image, captions in split.references.items()
        for caption in captions
    )
    epoch = list(batches.epoch(seed))
    assert Counter(pair for batch in epoch for pair in pairs(batch)) == expected
    assert len(epoch) == len(batches)
    assert batches.captions == expected.total()
    for position, batch in enumerate(epoch):
        assert 1 <= len(batch.tokens) <= max(size, group)
        assert batches.image_ids(seed, position) == batch.features[:, 0, 0].tolist()


@given(drawn=images, size=sizes, group=sizes, start=st.integers(0, 30), epoch=st.integers(0, 9))
def test_an_epoch_can_be_entered_anywhere(drawn, size, group, start, epoch):
    batches = batches_of(split_of(drawn), size, captions_per_image=group)
    whole, rest = list(batches.epoch(epoch)), list(batches.epoch(epoch, start))
    assert len(rest) == max(0, len(whole) - start)
    for expected, actual in zip(whole[start:], rest, strict=True):
        for one, other in zip(expected, actual, strict=True):
            assert one.equal(other)


@given(drawn=images, size=sizes)
def test_padding_comes_after_the_end_and_after_the_last_row(drawn, size):
    split = split_of(drawn)
    for batch in batches_of(split, size).epoch(0):
        for tokens in batch.tokens.tolist():
            words = tokens[: tokens.index(END_ID) + 1]
            assert words[0] == START_ID
            assert PAD_ID not in words
            assert set(tokens[len(words) :]) <= {PAD_ID}
        assert (batch.tokens != PAD_ID).any(0).all()
        for features, length in zip(batch.features, batch.lengths.tolist(), strict=True):
            image = int(features[0, 0])
            assert length == len(split.store.features(image))
            assert (features[:length] == image).all()
            assert (features[length:] == 0).all()


@given(drawn=images, max_length=st.integers(1, 8))
def test_a_caption_longer_than_the_model_is_cut(drawn, max_length):
    split = split_of(drawn)
    batches = batches_of(split, 3, max_length=max_length)
    for batch in batches.epoch(0):
        assert batch.tokens[:, :-1].shape[1] <= max_length
    # a start and an end beside the words, of which the end is not read
    words = [len(tokenise(text)) for texts in split.references.values() for text in texts]
    assert batches.truncated["captions"] == sum(count + 1 > max_length for count in words)


def many(images=300):
    random = np.random.default_rng(0)
    captions = [[" ".join(random.choice(WORDS, n)) for n in range(1, 8)] for _ in range(images)]
    return split_of({i: (2, texts) for i, texts in enumerate(captions)})


def test_epochs_and_seeds_have_orders_of_their_own():
    split = many()
    orders = {
        tuple(batches_of(split, 10, seed=seed).image_ids(epoch, 0))
        for seed in (0, 1)
        for epoch in (0, 1)
    }
    assert len(orders) == 4


def test_sorting_by_length_saves_padding_and_keeps_the_batches_mixed():
    split = many()
    padding = {}
    for window in (1, 20):
        batches = list(batches_of(split, 10, window=window).epoch(0))
        cells = sum(batch.tokens.numel() for batch in batches)
        padding[window] = sum(int((batch.tokens == PAD_ID).sum()) for batch in batches) / cells
        lengths = [batch.tokens.shape[1] for batch in batches]
        assert lengths != sorted(lengths)
    assert padding[20] < 0.1 < 0.2 < padding[1]


def test_captions_of_one_image_share_its_encoding():
    split = many()
    batch = next(batches_of(split, 14, captions_per_image=7).epoch(0))
    assert batch.features.shape[0] == 2
    assert batch.image_index.tolist() == [0] * 7 + [1] * 7


def test_nothing_to_train_on_is_an_error():
    split = split_of({5: (1, [])})
    with pytest.raises(InputError, match="no captions"):
        CaptionBatches(split, Vocabulary(()), 3, max_length=5)
    for option in ("captions_per_image", "window"):
        with pytest.raises(InputError, match=f"{option.replace('_', ' ')} is 0"):
            batches_of(many(3), 3, **{option: 0})
    with pytest.raises(InputError, match="batch size is 0"):
        batches_of(many(3), 0)


def test_features_that_cannot_be_read_stop_the_epoch_with_their_image():
    split = many(3)
    missing = replace(split, store=ArrayFeatures({0: np.zeros((1, 3)), 1: np.zeros((1, 3))}))
    with pytest.raises(InputError, match="image 2 has no features"):
        list(batches_of(missing, 3).epoch(0))


@given(st.lists(st.integers(), max_size=9))
def test_fetching_ahead_changes_nothing(items):
    assert list(fetched_ahead(items)) == items


def test_fetching_ahead_is_one_ahead_and_passes_errors_on():
    made = []

    def items():
        for i in range(5):
            made.append(i)
            yield i
        raise InputError("the end")

    fetched = fetched_ahead(items())
    assert next(fetched) == 0
    fetched.close()
    assert len(made) <= 2
    with pytest.raises(InputError, match="the end"):
        list(fetched_ahead(items()))


@given(drawn=images)
def test_without_images_every_image_has_the_mean_row_of_the_training_images(drawn):
    train = split_of(drawn)
    test = Split([1000], {1000: ["a star"]}, ArrayFeatures({1000: np.ones((2, 3))}))
    data = CaptionData("name", "print", vocabulary_of(train), {"train": train, "test": test})
    blind = without_images(data)
    rows = np.concatenate([train.store.features(i) for i in train.image_ids])
    for split in blind.splits.values():
        for image in split.image_ids:
            features = split.store.features(image)
            assert features.shape == (1, 3)
            assert features.dtype == np.float32
            np.testing.assert_array_equal(features[0], rows.mean(0, dtype=np.float64).astype("f4"))
    assert blind.fingerprint != data.fingerprint
    assert blind.splits["test"].references == test.references


@given(st.integers(1, 9), st.integers(1, 4), st.integers(0, 3), st.integers(0, 9))
def test_an_epoch_of_images_holds_each_with_references_once_wherever_it_is_entered(
    count, size, start, seed
):
    store = ArrayFeatures({i: np.full((1, 2), i) for i in range(count + 1)})
    # one without references
    split = Split(list(range(count + 1)), {i: ["a"] for i in range(1, count + 1)}, store)
    batches = ImageBatches(split, size, seed=seed)
    whole = list(batches.epoch(seed))
    assert len(whole) == len(batches)
    seen = [int(x) for batch in whole for x in batch.features[:, 0, 0]]
    assert sorted(seen) == list(range(1, count + 1))
    for position, batch in enumerate(whole):
        ids = [int(x) for x in batch.features[:, 0, 0]]
        assert batches.image_ids(seed, position) == ids
        assert [batches.with_references[place] for place in batch.image_ids] == ids
    rest = list(batches.epoch(seed, start))
    for one, other in zip(whole[start:], rest, strict=True):
        assert all(a.equal(b) for a, b in zip(one, other, strict=True))


def test_no_images_to_sample_of_is_an_error():
    split = Split([5], {5: []}, ArrayFeatures({5: np.zeros((1, 2))}))
    with pytest.raises(InputError, match="no captions"):
        ImageBatches(split, 2)
    with pytest.raises(InputError, match="batch size is 0"):
        ImageBatches(Split([5], {5: ["a"]}, split.store), 0)
