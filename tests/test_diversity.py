"""Self-BLEU and self-METEOR of sets of captions."""

from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.errors import InputError
from benchmarks.scoring import java
from benchmarks.scoring.diversity import self_scores
from benchmarks.verify.tolerances import METRIC, error
from reference import metrics

CAPTION = st.lists(st.sampled_from(["a", "man", "dog", "rides"]), min_size=1, max_size=7)
SETS = st.lists(st.lists(CAPTION, min_size=2, max_size=4), min_size=1, max_size=3)


def joined(sets):
    return {10 + i: [" ".join(caption) for caption in group] for i, group in enumerate(sets)}


@given(SETS)
def test_self_bleu_is_the_oracles_mean_over_images(sets):
    scores = self_scores(joined(sets), tokeniser="words", metrics=["B1", "B4"])
    expected = np.array([metrics.self_bleu(group) for group in sets])
    for metric, column in (("B1", 0), ("B4", 3)):
        assert error(list(scores.per_image[metric].values()), expected[:, column]) <= METRIC
        assert error(scores.values[metric], expected[:, column].mean()) <= METRIC
    assert (scores.images, list(scores.per_image["B4"])) == (len(sets), list(joined(sets)))


def test_self_meteor_pairs_each_caption_with_the_others_of_its_image(monkeypatch):
    heard = []

    @contextmanager
    def meteor(candidates, references):
        heard.extend(zip(candidates, references, strict=True))
        each = [0.1 * len(candidate) for candidate in candidates]
        yield SimpleNamespace(result=lambda: (float("nan"), each))

    monkeypatch.setattr(java, "meteor", meteor)
    sets = {3: ["a", "bb", "bb"], 8: ["cccc", "dd"]}
    scores = self_scores(sets, tokeniser="words", metrics=["METEOR"])
    assert heard == [
        ("a", ["bb", "bb"]),
        ("bb", ["a", "bb"]),
        ("bb", ["a", "bb"]),
        ("cccc", ["dd"]),
        ("dd", ["cccc"]),
    ]
    assert scores.per_image["METEOR"] == pytest.approx({3: 0.5 / 3, 8: 0.3}, abs=METRIC)
    assert scores.values["METEOR"] == pytest.approx((0.5 / 3 + 0.3) / 2, abs=METRIC)


def test_without_java_self_meteor_is_missing_and_says_why(monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    scores = self_scores({1: ["a dog runs", "a dog sits"]}, tokeniser="words")
    assert "METEOR needs Java" in scores.missing["METEOR"]
    assert list(scores.values) == ["B4"]


def test_a_set_without_two_captions_is_named():
    with pytest.raises(InputError, match="image_id 7 has 1, expected at least 2"):
        self_scores({3: ["a", "b"], 7: ["a"]}, tokeniser="words")
    with pytest.raises(InputError, match="captions: none given"):
        self_scores({}, tokeniser="words")
