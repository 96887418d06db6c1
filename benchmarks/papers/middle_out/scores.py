"""Measure a trained model for Middle-Out's Tables 2 to 7, sharing the beam searches.

The oracle's middle word is the image's own. Table 3's accuracies are simulated as in the paper:
a fraction (1 - target accuracy) / (1 - classifier accuracy) of the images has the classifier's
word, the others their own. A target below the classifier's accuracy is not run. Table 6 in numbers:
two concatenated images are one source, and its captions from the word of each image are compared
with the references of both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec import structs
from torch import Tensor

from benchmarks import records
from benchmarks.data import Split
from benchmarks.data.batches import chunks, padded_features
from benchmarks.data.middle_words import MiddleWords, WithWord
from benchmarks.kinds import Beam, Control, Diversity, Example, MiddleOut, as_kind
from benchmarks.papers.middle_out.middle_word_classifier import accuracy
from benchmarks.records import Record
from benchmarks.scoring import quality
from benchmarks.scoring.diversity import self_scores
from benchmarks.scoring.evaluate import evaluate
from torch_impl.decoding.grid_beam import grid_beam_search
from torch_impl.decoding.middle_out import middle_out_beam_search
from torch_impl.models import BaseCaptioner, MiddleOutCaptioner

PAPER = "middle_out"
BEAM = 8
SPLIT = "test"
BASELINE = "Seq2Seq + Attention"
WITH_WORD = "Seq2Seq + Attention (M)"
MIDDLE_OUT = "Middle-Out + Attention + Self-Attention"
ACCURACIES = {"50 %": 0.5, "75 %": 0.75}
"""The rows of Table 3 between the classifier and the oracle, with their accuracies."""
PAIRS = 50
"""Maximum number of image pairs of Table 6."""
SHOWN = 4
"""Number of beams in a record of Table 4."""
SHOWN_PAIRS = 5
"""Number of pairs in Table 10; its first is Table 6's."""

Words = Mapping[int, str]
Sets = dict[int, list[str]]
"""Captions by image, the best first."""


@dataclass(frozen=True)
class Trained:
    """A trained model and the fields of its records.

    Args:
        model: the captioner.
        words: the data with middle words.
        predicted: the classifier's word for each test image; None for left-to-right models.
        row: its name; the other fields are arguments of `evaluate`.
    """

    model: BaseCaptioner
    words: MiddleWords
    predicted: Words | None
    row: str
    seed: int
    key: str
    status: str
    tokeniser: str
    max_length: int
    details: Mapping[str, Any]

    @property
    def split(self) -> Split:
        return self.words.data.splits[SPLIT]

    @property
    def own_words(self) -> Words:
        """Each test image's own middle word, as the oracle's."""
        return {image_id: self.words.of_image[image_id] for image_id in self.split.image_ids}

    def captions(
        self, given: Words | None = None, split: Split | None = None, grid: bool = False
    ) -> Sets:
        """The beam of each image, optionally with a ``given`` word.

        A middle-out model starts from the word. A left-to-right model reads it as an input, or
        must contain it by grid beam search if ``grid``.
        """
        part, found = self.split if split is None else split, {}
        model, vocabulary = self.model, self.words.data.vocabulary
        assert isinstance(model, MiddleOutCaptioner)
        device = next(model.eval().parameters()).device
        ids = {} if given is None else {i: self.words.id_of(word) for i, word in given.items()}
        store = part.store
        if model.configuration.reads_middle_word:
            store = WithWord(store, ids)
        for image_ids in chunks(part.image_ids, 50):
            features, lengths = (x.to(device) for x in padded_features(store, image_ids))
            words = [ids[i] for i in image_ids] if ids else None
            tokens = _search(model, features, lengths, words, grid, self.max_length)
            for image_id, each in zip(image_ids, tokens, strict=True):
                found[image_id] = [vocabulary.decode(one) for one in each]
        return found

    def record(
        self,
        table: str,
        row: str,
        captions: Sets,
        values: Mapping[str, float] | None = None,
        given: Words | None = None,
    ) -> Record:
        """The record of a table's row: scores of the best captions, and further ``values``.

        Examples in it have the ``given`` word of their image.
        """
        made = evaluate(
            MiddleOut,
            self.model,
            self.words.data.vocabulary,
            self.words.data,
            row=row,
            status=self.status,
            key=self.key,
            seed=self.seed,
            paper=PAPER,
            table=table,
            split=SPLIT,
            beam_size=BEAM,
            max_length=self.max_length,
            tokeniser=self.tokeniser,
            captions={image_id: best for image_id, (best, *_) in captions.items()},
            details=self.details,
        )
        shown = made.details.examples
        if given is not None:
            shown = [structs.replace(example, word=given[example.image]) for example in shown]
        details = structs.replace(made.details, examples=shown)
        return records.replace(made, values={**made.values, **(values or {})}, details=details)


def _search(
    model: MiddleOutCaptioner,
    features: Tensor,
    lengths: Tensor,
    words: Sequence[int] | None,
    grid: bool,
    max_length: int,
) -> list[list[list[int]]]:
    """The beams of a batch as token ids; grid beams are sorted by the same score."""
    options = {"beam_size": BEAM, "num_return": BEAM, "max_length": max_length}
    if grid:
        assert words is not None
        found = grid_beam_search(model, features, lengths, words=words, **options)
        return [
            [h.tokens for h in sorted(image, key=lambda h: -sum(h.log_probs) - len(h.tokens))]
            for image in found
        ]
    middle = words if model.configuration.middle_out else None
    beams = middle_out_beam_search(model, features, lengths, middle=middle, **options)
    return [[halves.caption(model.end_id) for halves in image] for image in beams]


def scored(trained: Trained, tables: Sequence[str]) -> list[Record]:
    """The records of a model in all ``tables`` that have a row of it."""
    if "7" in tables:
        return [trained.record("7", trained.row, trained.captions())]
    special = {BASELINE: _baseline, WITH_WORD: _with_word, MIDDLE_OUT: _middle_out}
    return list(special.get(trained.row, _plain)(trained))


def _plain(trained: Trained) -> Iterator[Record]:
    beams = trained.captions(trained.predicted)
    yield trained.record("2", trained.row, beams, given=trained.predicted)


def _baseline(trained: Trained) -> Iterator[Record]:
    beams = trained.captions()
    best = trained.record("2", trained.row, beams)
    yield best
    yield _diversity(trained, beams, best)
    yield trained.record("5", f"{BASELINE} (G)", trained.captions(trained.own_words, grid=True))


def _with_word(trained: Trained) -> Iterator[Record]:
    given = trained.record("5", WITH_WORD, trained.captions(trained.own_words))
    yield given
    yield _as(given, "2", f"oracle: {BASELINE}")
    grid = trained.captions(trained.own_words, grid=True)
    yield trained.record("5", f"{WITH_WORD} (G)", grid)
    yield control(trained, given, BASELINE)


def _middle_out(trained: Trained) -> Iterator[Record]:
    assert trained.predicted is not None
    beams = trained.captions(trained.predicted)
    own = trained.record("5", MIDDLE_OUT, trained.captions(trained.own_words))
    best = trained.record("2", MIDDLE_OUT, beams, given=trained.predicted)
    right = accuracy(trained.words, dict(trained.predicted))
    yield best
    yield _as(own, "2", f"oracle: {MIDDLE_OUT}")
    yield own
    classified = _as(best, "3", "classifier", {"sampling ratio": 100.0, "accuracy": 100 * right})
    always = dict.fromkeys(trained.own_words, trained.words.candidates[0])
    details = structs.replace(classified.details, commonest=accuracy(trained.words, always))
    yield records.replace(classified, details=details)
    for row, wanted in ACCURACIES.items():
        if wanted > right:
            given, share = mixed(trained.predicted, trained.own_words, right, wanted, trained.seed)
            reached = 100 * accuracy(trained.words, given)
            values = {"sampling ratio": 100 * share, "accuracy": reached}
            yield trained.record("3", row, trained.captions(given), values)
    yield _as(own, "3", "100 %", {"sampling ratio": 0.0, "accuracy": 100.0})
    yield _diversity(trained, beams, best)
    yield control(trained, own, "Middle-Out + Self-Attention")


def mixed(
    predicted: Words, own: Words, right: float, wanted: float, seed: int
) -> tuple[dict[int, str], float]:
    """Words of expected accuracy ``wanted``, and the fraction of images with predicted words.

    Args:
        right: the classifier's accuracy, below ``wanted``.
        wanted: the accuracy to simulate.
    """
    share = (1 - wanted) / (1 - right)
    draws = np.random.default_rng((seed, 3)).random(len(own))
    given = {i: predicted[i] if u < share else own[i] for i, u in zip(own, draws, strict=True)}
    return given, share


def _as(record: Record, table: str, row: str, values: Mapping[str, float] | None = None) -> Record:
    """The same measurement as a row of another table."""
    return records.replace(record, table=table, row=row, values={**record.values, **(values or {})})


def _diversity(trained: Trained, beams: Sets, record: Record) -> Record:
    """Table 4: the similarity of a beam's captions."""
    scores = self_scores(beams, tokeniser=trained.tokeniser)
    names = {"METEOR": "self METEOR", "B4": "self B4"}
    order = trained.split.image_ids
    details = as_kind(
        Diversity,
        record.details,
        missing={names[metric]: why for metric, why in scores.missing.items()},
        self_b4=[round(scores.per_image["B4"][image_id], 6) for image_id in order],
        beams=[Beam(image=i, captions=beams[i]) for i in order[:SHOWN]],
    )
    return records.replace(
        record,
        table="4",
        values={names[metric]: 100 * value for metric, value in scores.values.items()},
        details=details,
        signature=f"self-scores+{trained.tokeniser}",
    )


class Pairs:
    """A store of two images' concatenated features, by the id of one of them."""

    def __init__(self, split: Split, pairs: Mapping[int, tuple[int, int]]) -> None:
        self._store, self._pairs = split.store, pairs
        self.d_feature, self.fingerprint = split.store.d_feature, split.store.fingerprint
        self.image_ids: Sequence[int] = list(pairs)

    def __len__(self) -> int:
        return len(self._pairs)

    def features(self, image_id: int) -> Any:
        """The features of a pair, (L, d_feature).

        Raises:
            InputError: there are none, or they are damaged.
        """
        return np.concatenate([self._store.features(i) for i in self._pairs[image_id]])


def pairs_of(words: MiddleWords, split: Split, most: int = PAIRS) -> list[tuple[int, int]]:
    """Disjoint pairs of images with different middle words, in the split's order."""
    found: list[tuple[int, int]] = []
    waiting: int | None = None
    for image_id in split.image_ids:
        if waiting is not None and words.of_image[waiting] != words.of_image[image_id]:
            found.append((waiting, image_id))
            waiting = None
        elif waiting is None:
            waiting = image_id
    return found[:most]


def control(trained: Trained, record: Record, row: str) -> Record:
    """Table 6 in numbers: captions of two concatenated images, from the word of each.

    "has the word" is the fraction of captions with the given word; "follows the word", of those
    with a higher CIDEr-D for the word's image than for the other, where ties count half.
    """
    words, split = trained.words, trained.split
    pairs = pairs_of(words, split)
    made: dict[int, str] = {}
    for side in (0, 1):
        # keyed by the image whose word is given
        both = {pair[side]: pair for pair in pairs}
        part = Split(list(both), {}, Pairs(split, both))
        given = {image_id: words.of_image[image_id] for image_id in both}
        made |= {image_id: best for image_id, (best, *_) in trained.captions(given, part).items()}
    references = {i: split.references[i] for pair in pairs for i in pair}
    other = {i: j for pair in pairs for i, j in (pair, pair[::-1])}
    own, crossed = (
        quality.score(
            references, captions, tokeniser=trained.tokeniser, metrics=["CIDEr-D"]
        ).per_image["CIDEr-D"]
        for captions in (made, {other[i]: caption for i, caption in made.items()})
    )
    follows = [0.5 * (1 + np.sign(own[i] - crossed[other[i]])) for i in references]
    tokenise = words.data.vocabulary.tokenise
    has = [words.of_image[i] in tokenise(made[i]) for i in references]
    shown = [
        [
            Example(
                image=i,
                word=words.of_image[i],
                caption=made[i],
                reference=split.references[i][0],
            )
            for i in pair
        ]
        for pair in pairs[:SHOWN_PAIRS]
    ]
    return records.replace(
        record,
        table="6",
        row=row,
        values={
            "has the word": 100 * float(np.mean(has)),
            "follows the word": 100 * float(np.mean(follows)),
        },
        n=len(references),
        details=as_kind(Control, record.details, follows=follows, pairs=shown),
    )
