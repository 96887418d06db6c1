"""Words and ids: the tokeniser's properties, round trips, and what the order of ids depends on."""

import string
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.data.vocabulary import (
    END_ID,
    PAD_ID,
    SPECIAL_TOKENS,
    START_ID,
    UNKNOWN_ID,
    Vocabulary,
    characters,
    tokenise,
)

words = st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=4)
captions = st.lists(
    st.lists(st.sampled_from(["a", "red", "ball", "box", "on", "two", "t-shirt"]), max_size=8).map(
        " ".join
    ),
    max_size=12,
)


@given(st.text())
def test_tokens_hold_no_space_no_ascii_punctuation_and_are_stable(text):
    tokens = tokenise(text)
    assert not any(c.isspace() or c in string.punctuation for token in tokens for c in token)
    assert all(tokens)
    assert tokenise(" ".join(tokens)) == tokens


@given(st.text(string.ascii_letters + string.digits + string.punctuation + " \t\n"))
def test_ascii_text_is_lowered_and_its_punctuation_deleted_not_spaced(text):
    removed = "".join(c for c in text if c not in string.punctuation)
    assert tokenise(text) == removed.lower().split()


def test_published_tokens_of_a_karpathy_caption():
    raw = 'A man\'s t-shirt , which is red/blue ; reads "Go!" .'
    assert tokenise(raw) == ["a", "mans", "tshirt", "which", "is", "redblue", "reads", "go"]


@given(st.lists(words, unique=True, max_size=20), st.data())
def test_encode_then_decode_is_the_caption(vocabulary_words, data):
    vocabulary = Vocabulary(tuple(vocabulary_words))
    chosen = data.draw(st.lists(st.sampled_from(vocabulary_words or ["x"]), max_size=10))
    known = [word for word in chosen if word in vocabulary_words]
    ids = vocabulary.encode(known)
    assert ids[0] == START_ID and ids[-1] == END_ID and len(ids) == len(known) + 2
    assert all(len(SPECIAL_TOKENS) <= i < len(vocabulary) for i in ids[1:-1])
    assert vocabulary.decode(ids) == " ".join(known)
    assert vocabulary.decode([*ids, PAD_ID, *ids]) == " ".join(known), "nothing follows the end"
    assert vocabulary.decode(ids[:-1]) == " ".join(known), "a caption may lack its end"


def test_an_unknown_word_is_unknown_and_reads_unk():
    vocabulary = Vocabulary(("a", "ball"))
    ids = vocabulary.encode(["a", "green", "ball"])
    assert ids == [START_ID, 4, UNKNOWN_ID, 5, END_ID]
    assert vocabulary.decode(ids) == "a unk ball"
    assert vocabulary.encode(["unk", "<pad>"])[1:-1] == [UNKNOWN_ID, UNKNOWN_ID]


@given(captions, st.integers(1, 4), st.randoms(use_true_random=False))
def test_vocabulary_does_not_depend_on_the_order_of_captions(texts, min_count, random):
    vocabulary = Vocabulary.from_captions(texts, min_count)
    shuffled = random.sample(texts, len(texts))
    assert Vocabulary.from_captions(shuffled, min_count) == vocabulary
    assert Vocabulary.from_captions(shuffled, min_count).fingerprint == vocabulary.fingerprint


@given(captions, st.integers(1, 4))
def test_words_fall_in_frequency_then_rise_in_the_alphabet_and_none_is_rare(texts, min_count):
    all_words = [word for text in texts for word in tokenise(text)]
    counts = {word: all_words.count(word) for word in all_words}
    expected = [word for word in counts if counts[word] >= min_count]
    ordered = Vocabulary.from_captions(texts, min_count).words
    assert sorted(ordered) == sorted(expected)
    keys = [(-counts[word], word) for word in ordered]
    assert keys == sorted(keys)


def test_the_fingerprint_tells_words_and_their_order_apart():
    prints = {Vocabulary(w).fingerprint for w in [(), ("a",), ("a", "b"), ("b", "a"), ("ab",)]}
    assert len(prints) == 5


@pytest.mark.parametrize("i", [-1, 6, 10**6])
def test_an_id_outside_the_vocabulary_is_named(i):
    with pytest.raises(ValueError, match=rf"token id {i} is outside the vocabulary of 6"):
        Vocabulary(("a", "b")).decode([START_ID, i])


def test_a_word_twice_and_a_count_below_one_are_named():
    with pytest.raises(ValueError, match="'a' stands twice"):
        Vocabulary(("a", "b", "a"))
    with pytest.raises(ValueError, match="min_count is 0"):
        Vocabulary.from_captions(["a"], 0)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Une fenêtre, l'été.", ["une", "fenêtre", "lété"]),
        ("Une fene\u0302tre", ["une", "fene\u0302tre"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("Über 3 Straßen!", ["über", "3", "straßen"]),
    ],
)
def test_words_of_any_language_keep_their_letters_marks(text, tokens):
    assert tokenise(text) == tokens


def test_characters_are_letters_with_their_marks():
    assert characters("一只狗,在跑。") == list("一只狗在跑")
    assert characters("में 2") == ["में", "2"]
    assert characters("a e\u0302") == ["a", "e\u0302"]


@given(st.text())
def test_characters_lose_nothing_of_the_words_and_are_stable(text):
    tokens = characters(text)
    assert "".join(tokens) == "".join(tokenise(text))
    assert characters("".join(tokens)) == tokens
    assert sum(character.isalnum() for token in tokens for character in token) == sum(
        any(character.isalnum() for character in token) for token in tokens
    )


@given(st.lists(st.text("狗猫跑在一只", min_size=1), min_size=1), st.integers(1, 3))
def test_a_vocabulary_of_characters_reads_and_writes_captions_without_spaces(texts, min_count):
    vocabulary = Vocabulary.from_captions(texts, min_count, "characters")
    assert all(len(word) == 1 for word in vocabulary.words)
    for text in texts:
        known = vocabulary.unknown([text]).total() == 0
        written = vocabulary.decode(vocabulary.encode(vocabulary.tokenise(text)))
        assert (written == text) == known
    by_words = Vocabulary(vocabulary.words, min_count)
    assert vocabulary.fingerprint != by_words.fingerprint, "the same ids of other tokens"
    assert Vocabulary(**asdict(vocabulary)) == vocabulary


@given(captions, st.integers(1, 4))
def test_unknown_words_are_those_too_rare_to_be_kept(texts, min_count):
    vocabulary = Vocabulary.from_captions(texts, min_count)
    unknown = vocabulary.unknown(texts)
    assert not set(unknown) & set(vocabulary.words)
    assert all(0 < count < min_count for count in unknown.values())
    ids = [i for text in texts for i in vocabulary.encode(vocabulary.tokenise(text))]
    assert unknown.total() == ids.count(UNKNOWN_ID)


def test_an_unknown_tokeniser_is_named():
    with pytest.raises(ValueError, match="tokeniser is 'syllables', expected one of words, chara"):
        Vocabulary(("a",), tokeniser="syllables")
