"""Middle-Out Tables 2 to 7: captions from the middle outwards, beside those from left to right.

All models of a seed learn the same captions, those with a middle word (`middle_words`), in the same
order, by the paper's recipe: Adam at one rate, scheduled sampling up to 0.25, which begins at 0 and
of which the reduced form's one epoch has none. The words' vectors are learned with the rest; the
paper's are from word2vec. Searches keep 8 hypotheses by the score that has the length in it. An
image's rows of features, or a clip's frames, are the input sequence.

Tables 2 to 6 share five models, Table 7 has three.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch

from benchmarks import records
from benchmarks.data import CaptionData
from benchmarks.data.middle_words import MiddleWords, WithWord, choose
from benchmarks.data.scenes import motion
from benchmarks.data.vocabulary import END_ID, PAD_ID, START_ID
from benchmarks.files import alone, sha256
from benchmarks.papers.experiment import (
    Experiment,
    Place,
    Run,
    rows_by_seed,
)
from benchmarks.papers.middle_out import middle_word_classifier
from benchmarks.papers.middle_out import scores as middle_out_scores
from benchmarks.papers.middle_out.middle_word_classifier import Schedule
from benchmarks.papers.middle_out.scores import PAPER, Trained
from benchmarks.papers.stages import flickr8k, in_stages, one_rate
from benchmarks.records import Record
from benchmarks.scoring import java
from benchmarks.training.fit import Result
from benchmarks.training.presets import Settings
from torch_impl.models import MiddleOutConfiguration, build

MODELS: dict[str, dict[str, Any]] = {
    "Seq2Seq + Attention": {"middle_out": False, "self_attention": "none"},
    "Seq2Seq + Attention + Self-Attention": {"middle_out": False, "self_attention": "dual"},
    "Seq2Seq + Attention (M)": {
        "middle_out": False,
        "self_attention": "none",
        "reads_middle_word": True,
    },
    "Middle-Out + Attention": {"self_attention": "none"},
    "Middle-Out + Attention + Self-Attention": {"self_attention": "dual"},
}
"""The rows of Tables 2 and 5 that are trained."""
ABLATION: dict[str, dict[str, Any]] = {
    f"{name} Self-Attention": {"middle_out": False, "self_attention": kind}
    for name, kind in (("Output Embedding", "output"), ("Hidden", "hidden"), ("Dual", "dual"))
}
"""Table 7; "Dual" is Table 2's sequence-to-sequence model with self-attention."""
ALL = {**MODELS, **ABLATION}


def shares(row: str) -> tuple[bool, str]:
    """Rows that agree in this share a training: two sides their classifier, one side the model."""
    fields = ALL[row]
    two_sides = fields.get("middle_out", True)
    reads = "reads_middle_word" in fields
    return two_sides, "" if two_sides else f"{fields['self_attention']}{' word' if reads else ''}"


@dataclass(frozen=True)
class Form:
    """What is captioned, by how large models, and their training.

    Args:
        load: where -> the data.
        status: of its records.
        sizes: what records call the models' sizes, so that forms are never mixed.
        model: the sizes.
        settings: of the decoders' training.
        schedule: of the classifier's.
        tokeniser: of the scores, where it is to be had.
    """

    load: Callable[[Place], CaptionData]
    status: str
    sizes: str
    model: Mapping[str, Any]
    settings: Settings
    schedule: Schedule
    tokeniser: str = "ptb"


def moving_scenes(_: Place) -> CaptionData:
    """The embedded moving scenes, which need no place."""
    return motion.make(seed=0, train=1000, val=50, test=200)


FORMS = {
    "scenes": Form(
        moving_scenes,
        "embedded",
        "64 units",
        {"d_embedding": 64, "hidden_size": 64, "max_length": 20},
        Settings(
            one_rate(5e-3, 6, 100),
            captions_per_image=5,
            validate_every=6,
            sampling=0.05,
        ),
        Schedule(1e-2, 10),
        "words",
    ),
    "reduced": Form(
        flickr8k,
        "other data",
        "128 units, an epoch",
        {"d_embedding": 128, "hidden_size": 128, "max_length": 30},
        Settings(
            one_rate(4e-3, 1, 40),
            captions_per_image=5,
            validation_images=100,
            max_length=30,
            sampling=0.05,
        ),
        Schedule(1e-3, 4),
    ),
    "flickr8k": Form(
        flickr8k,
        "other data",
        "1,024 units, 15 epochs",
        {"d_embedding": 512, "hidden_size": 1024, "max_length": 30},
        Settings(
            one_rate(1e-4, 15, 32),
            validation_images=500,
            max_length=30,
            sampling=0.05,
        ),
        Schedule(1e-4, 15),
    ),
}


def with_middle_words(form: Form, place: Place) -> MiddleWords:
    """What a form captions, named by its sizes too."""
    words = choose(form.load(place))
    return replace(words, data=replace(words.data, name=f"{words.data.name}, {form.sizes}"))


def learning(words: MiddleWords, fields: Mapping[str, Any], max_length: int) -> CaptionData:
    """What a model learns from: its captions in the order in which it generates them."""
    data = words.data
    if fields.get("reads_middle_word"):
        ids = {i: words.id_of(word) for i, word in words.of_image.items()}
        splits = {
            name: replace(part, features=WithWord(part.features, ids))
            for name, part in data.splits.items()
        }
        fingerprint = sha256(f"{data.fingerprint} with words".encode())
        return replace(data, fingerprint=fingerprint, splits=splits)
    if not fields.get("middle_out", True):
        return data
    train = data.splits["train"]
    learned = words.in_order("train", max_length - 1)
    # a caption whose halves both end has two end tokens
    cut = sum(ids.count(END_ID) < 2 for captions in learned.values() for ids in captions)
    train = replace(train, learned=learned, cut={"captions": cut})
    return replace(data, splits={**data.splits, "train": train})


def train(
    form: Form, words: MiddleWords, fields: Mapping[str, Any], seed: int, place: Place
) -> tuple[Result, middle_word_classifier.SequenceClassifier | None]:
    """A model, and the classifier that it begins with if it has two sides."""
    data = learning(words, fields, form.model["max_length"])
    two_sides = fields.get("middle_out", True)
    configuration = MiddleOutConfiguration(
        len(data.vocabulary),
        data.splits["train"].features.d_feature,
        start_id=START_ID,
        end_id=END_ID,
        pad_id=PAD_ID,
        middle_words=tuple(map(words.id_of, words.candidates)) if two_sides else (),
        **{**form.model, **fields},
    )
    classifier, initial = None, None
    if two_sides:
        hidden_size = form.model["hidden_size"]
        with alone(place.work / f"middle-words-{seed}"):
            classifier = middle_word_classifier.trained(
                words, hidden_size, form.schedule, seed, place
            )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            begun = build(configuration)
        initial = begun.state_dict() | {
            f"classifier.{name}": weights.cpu() for name, weights in classifier.state_dict().items()
        }
    (result,) = in_stages(data, configuration, [form.settings], seed, place, initial)
    return result, classifier


def _run(
    name: str, tables: Sequence[str], place: Place, row: str, seed: int, key: str
) -> list[Record]:
    began, form = time.perf_counter(), FORMS[name]
    words, fields = with_middle_words(form, place), ALL[row]
    result, classifier = train(form, words, fields, seed, place)
    trained = Trained(
        result.model,
        words,
        None if classifier is None else middle_word_classifier.predicted(classifier, words, "test"),
        row=row,
        seed=seed,
        key=key,
        status=form.status,
        tokeniser=form.tokeniser if java.has_java() else "words",
        max_length=form.settings.max_length,
        details={
            "form": name,
            "configuration": result.model.configuration.to_dict(),
            "stages": [asdict(form.settings)],
            "classifier": asdict(form.schedule),
            "left_out": dict(words.left_out),
            "best": result.best,
        },
    )
    made = middle_out_scores.scored(trained, tables)
    wall_s = time.perf_counter() - began
    return [records.replace(record, wall_s=wall_s) for record in made]


def _runs(
    models: Mapping[str, Any], tables: Sequence[str], form: str, place: Place, seeds: Sequence[int]
) -> list[Run]:
    """All rows of a seed, then those of the next."""
    chosen = FORMS[form]
    # what can score here too: what could not is measured when it can
    given = tables, form, chosen.model, chosen.settings, chosen.schedule, java.available()
    make = partial(_run, form, tables, place)
    return rows_by_seed(models, seeds, make, PAPER, models, given)


VIDEO_CAPTIONS, SELF_ATTENTION = (
    Experiment(
        PAPER,
        tables,
        tuple(FORMS),
        {
            "scenes": "1,000 generated moving scenes, 64 units, 6 epochs: minutes on a CPU",
            "reduced": "Flickr8k (with --features), 128 units, an epoch: on a CPU",
            "flickr8k": "Flickr8k, the paper's 1,024 units and 15 epochs: for a GPU",
        },
        3,
        partial(_runs, models, tables),
    )
    for models, tables in ((MODELS, ("2", "3", "4", "5", "6")), (ABLATION, ("7",)))
)
