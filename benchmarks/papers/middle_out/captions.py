"""Middle-Out Tables 2 to 7: captions decoded middle-out, and from left to right.

All models of a seed train on the same captions, those with a middle word (`middle_words`), in the
same order, by the paper's recipe: Adam at a constant learning rate, scheduled sampling from 0 up to
0.25 (none in the reduced form's single epoch). Word embeddings are trained with the model; the
paper's are from word2vec. The beam size is 8, with the length-rewarding score. The input sequence
is an image's rows of features, or a clip's frames.

Tables 2 to 6 share five models, Table 7 has three.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from benchmarks.data import CaptionData
from benchmarks.data.middle_words import MiddleWords, WithWord, choose
from benchmarks.data.scenes import motion
from benchmarks.data.vocabulary import END_ID
from benchmarks.files import locked, sha256
from benchmarks.papers import caption_experiments
from benchmarks.papers.caption_experiments import flickr8k, in_stages, one_rate
from benchmarks.papers.experiment import Experiment, Form, Place, RowRun
from benchmarks.papers.middle_out import middle_word_classifier
from benchmarks.papers.middle_out import scores as middle_out_scores
from benchmarks.papers.middle_out.middle_word_classifier import Schedule
from benchmarks.papers.middle_out.scores import PAPER, Trained
from benchmarks.records import Record
from benchmarks.scoring import java
from benchmarks.training.configuration import Stage, TrainingConfig
from benchmarks.training.fit import Result
from benchmarks.training.objective import seeded
from torch_impl.models import MiddleOutCaptioner, SequenceClassifier, build

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
"""The trained rows of Tables 2 and 5."""
ABLATION: dict[str, dict[str, Any]] = {
    f"{name} Self-Attention": {"middle_out": False, "self_attention": kind}
    for name, kind in (("Output Embedding", "output"), ("Hidden", "hidden"), ("Dual", "dual"))
}
"""The rows of Table 7; "Dual" is Table 2's sequence-to-sequence model with self-attention."""
ALL = {**MODELS, **ABLATION}


def shares(row: str) -> tuple[bool, str]:
    """A key of shared training: middle-out rows share the classifier, equal others the model."""
    fields = ALL[row]
    two_sides = fields.get("middle_out", True)
    reads = "reads_middle_word" in fields
    return two_sides, "" if two_sides else f"{fields['self_attention']}{' word' if reads else ''}"


SIZES = ("d_embedding", "hidden_size", "max_length")
ONE_SIDE = {"family": "middle_out", "middle_out": False, "self_attention": "dual"}
"""The sequence-to-sequence model with self-attention, without its sizes."""


@dataclass(frozen=True)
class TwoTrainings:
    """The training of the decoders, and of the middle-word classifier of middle-out models."""

    decoder: TrainingConfig
    classifier: Schedule


def moving_scenes(_: Place) -> CaptionData:
    """The embedded moving scenes."""
    return motion.make(seed=0, train=1000, val=50, test=200)


def _two(
    d_embedding: int,
    hidden_size: int,
    max_length: int,
    optimisation: tuple[float, int, int],
    classifier: Schedule,
    **stage: int,
) -> TwoTrainings:
    decoder = TrainingConfig.of(
        Stage(one_rate(*optimisation), max_length=max_length, sampling=0.05).but(**stage),
        family="middle_out",
        d_embedding=d_embedding,
        hidden_size=hidden_size,
        max_length=max_length,
    )
    return TwoTrainings(decoder, classifier)


FORMS = {
    "scenes": Form(
        "1,000 generated moving scenes, 64 units, 6 epochs: minutes on a CPU",
        moving_scenes,
        _two(
            *(64, 64, 20, (5e-3, 6, 100), Schedule(1e-2, 10)),
            captions_per_image=5,
            validate_every=6,
        ),
        status="embedded",
        sizes="64 units",
    ),
    "reduced": Form(
        "Flickr8k (with --features), 128 units, an epoch: on a CPU",
        flickr8k,
        _two(
            *(128, 128, 30, (4e-3, 1, 40), Schedule(1e-3, 4)),
            captions_per_image=5,
            validation_images=100,
        ),
        sizes="128 units, an epoch",
        tokeniser="ptb",
    ),
    "converged": Form(
        "Flickr8k (with --features), 128 units, until validation has not improved for 2 epochs",
        flickr8k,
        _two(
            *(128, 128, 30, (2e-3, 15, 60), Schedule(1e-3, 8)),
            captions_per_image=5,
            validation_images=500,
            patience=2,
        ),
        sizes="128 units, converged",
        tokeniser="ptb",
    ),
    "flickr8k": Form(
        "Flickr8k, the paper's 1,024 units and 15 epochs: for a GPU",
        flickr8k,
        _two(512, 1024, 30, (1e-4, 15, 32), Schedule(1e-4, 15), validation_images=500),
        sizes="1,024 units, 15 epochs",
        tokeniser="ptb",
    ),
}


def training(form: Form, row: str) -> TwoTrainings:
    """A row's training."""
    two: TwoTrainings = form.training
    return replace(two, decoder=two.decoder.but(**ALL[row]))


def with_middle_words(run: RowRun) -> MiddleWords:
    """The run's data with middle words, named as in records."""
    words = choose(run.data)
    return replace(words, data=run.named(words.data))


def learning(words: MiddleWords, fields: Mapping[str, Any], max_length: int) -> CaptionData:
    """A model's training data: captions in its generation order, features with its inputs."""
    data = words.data
    if fields.get("reads_middle_word"):
        ids = {i: words.id_of(word) for i, word in words.of_image.items()}
        splits = {
            name: replace(part, store=WithWord(part.store, ids))
            for name, part in data.splits.items()
        }
        fingerprint = sha256(f"{data.fingerprint} with words".encode())
        return replace(data, fingerprint=fingerprint, splits=splits)
    if not fields.get("middle_out", True):
        return data
    train = data.splits["train"]
    targets = words.in_order("train", max_length - 1)
    # a caption with two end tokens has both halves uncut
    truncated = sum(ids.count(END_ID) < 2 for captions in targets.values() for ids in captions)
    train = replace(train, targets=targets, truncated={"captions": truncated})
    return replace(data, splits={**data.splits, "train": train})


def train(run: RowRun, words: MiddleWords) -> tuple[Result, SequenceClassifier | None]:
    """Train a model and, for a middle-out one, first its middle-word classifier."""
    decoder: TrainingConfig = run.training.decoder
    model = decoder.model
    data = learning(words, model, model["max_length"])
    if not model.get("middle_out", True):
        (result,) = in_stages(data, decoder, run.seed, run.place)
        return result, None
    decoder = decoder.but(middle_words=tuple(map(words.id_of, words.candidates)))
    with locked(run.place.work / f"middle-words-{run.seed}"):
        classifier = middle_word_classifier.trained(
            words, model["hidden_size"], run.training.classifier, run.seed, run.place
        )
    with seeded(run.seed):
        initial = build(decoder.configuration(data))
    assert isinstance(initial, MiddleOutCaptioner) and initial.classifier is not None
    initial.classifier.load_state_dict(classifier.state_dict())
    (result,) = in_stages(data, decoder, run.seed, run.place, initial)
    return result, classifier


def described(run: RowRun, result: Result) -> dict[str, Any]:
    """How a model was trained, as fields of a record's details."""
    return {"form": run.name, **caption_experiments.described(run.training.decoder, [result])}


def _measure(run: RowRun) -> list[Record[Any]]:
    words = with_middle_words(run)
    result, classifier = train(run, words)
    trained = Trained(
        result.model,
        words,
        None if classifier is None else middle_word_classifier.predicted(classifier, words, "test"),
        row=run.row,
        seed=run.seed,
        key=run.key,
        status=run.form.status,
        tokeniser=run.form.tokeniser if java.has_java() else "words",
        max_length=run.training.decoder.last.max_length,
        details={
            **described(run, result),
            "classifier": asdict(run.training.classifier),
            "left_out": dict(words.left_out),
            "best": result.best,
        },
    )
    return middle_out_scores.scored(trained, run.tables)


VIDEO_CAPTIONS, SELF_ATTENTION = (
    Experiment(PAPER, tables, tuple(models), FORMS, training, _measure)
    for models, tables in ((MODELS, ("2", "3", "4", "5", "6")), (ABLATION, ("7",)))
)
