"""``captionbench evaluate``: caption a split with a trained model, and score it as a record."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import records
from benchmarks.data import CaptionData
from benchmarks.data.vocabulary import Vocabulary
from benchmarks.errors import InputError
from benchmarks.kinds import Evaluation, Example, Scored, Scores
from benchmarks.records import Record
from benchmarks.run_folder import RunFolder
from benchmarks.scoring import captioners, java, quality
from benchmarks.scoring.caption import caption
from benchmarks.scoring.onnx_captioner import OnnxCaptioner
from torch_impl.decoding.ensemble import Ensemble
from torch_impl.models import (
    BaseCaptioner,
    Configuration,
    MiddleOutConfiguration,
    RecurrentConfiguration,
)

PAPER, TABLE = "expansionnet_v2", "I"
"""The table of models trained by cross-entropy."""
SCORES = "scores"
"""The table of models that are in no paper's table."""
MAX_LENGTH = 20
"""Maximum length of a scored caption in tokens, start included."""
EXAMPLES = 8


def row_name(encoder: str, decoder: str) -> str:
    """A model's row in the ablation tables."""
    return f"{encoder} | {decoder}"


def place_of(models: Sequence[BaseCaptioner]) -> tuple[str, str, str]:
    """The paper, table and row for the scores of a model or an ensemble."""
    papers, rows = zip(*map(_described, models), strict=True)
    if len(models) > 1:
        return PAPER, SCORES, f"ensemble of {' + '.join(rows)}"
    table = TABLE if isinstance(models[0].configuration, Configuration) else SCORES
    return papers[0], table, rows[0]


def _described(model: BaseCaptioner) -> tuple[str, str]:
    """The paper of a model's family, and a short name of the model."""
    c = model.configuration
    if isinstance(c, RecurrentConfiguration):
        if c.read_only:
            return "lstm_readonly", f"read-only LSTM of {c.hidden_size} units, {c.read_only}"
        return "arnet", f"{'attentive ' if c.attentive else ''}LSTM of {c.hidden_size} units"
    if isinstance(c, MiddleOutConfiguration):
        kind = "middle-out" if c.middle_out else "sequence to sequence"
        attention = f"{c.self_attention} self-attention"
        return "middle_out", f"{kind} of {c.hidden_size} units, {attention}"
    assert isinstance(c, Configuration)
    return PAPER, row_name(c.encoder, c.decoder)


def evaluate(
    kind: type[Scores] | type[Scored],
    model: BaseCaptioner | Ensemble,
    vocabulary: Vocabulary,
    data: CaptionData,
    *,
    row: str,
    status: str,
    key: str,
    seed: int | Sequence[int],
    paper: str = PAPER,
    table: str = TABLE,
    split: str = "test",
    beam_size: int = 3,
    max_length: int = MAX_LENGTH,
    tokeniser: str = "ptb",
    examples: int = EXAMPLES,
    captions: Mapping[int, str] | None = None,
    details: Mapping[str, Any] | None = None,
    progress: bool = False,
) -> Record:
    """Caption ``split`` by beam search and score it by every available metric.

    ``captions``, if given, are scored instead. Scores differ from those of validations during
    training, which use another tokeniser.

    Returns:
        A record whose values are the scores times 100, and whose details are ``details``, CIDEr-D
        by image (in the split's order, 0 to 10) and ``examples`` captions.
    """
    began = time.perf_counter()
    part = data.split(split)
    if captions is None:
        captions = caption(
            model, vocabulary, part, beam_size, max_length=max_length, progress=progress
        )
    scores = quality.score(part.references, captions, tokeniser=tokeniser)
    if "CIDEr-D" not in scores.values:
        raise InputError(f"CIDEr-D cannot be computed: {scores.missing['CIDEr-D']}")
    per_image = scores.per_image["CIDEr-D"]
    shown = part.image_ids[:: max(1, len(part.image_ids) // examples)][:examples]
    return records.make(
        kind(
            **(details or {}),
            beam_size=beam_size,
            max_length=max_length,
            missing=scores.missing,
            parameters=sum(parameter.numel() for parameter in model.parameters()),
            cider_d=[round(per_image[image], 6) for image in part.image_ids],
            examples=[
                Example(image=image, caption=captions[image], reference=part.references[image][0])
                for image in shown
            ],
        ),
        paper=paper,
        table=table,
        row=row,
        values={name: 100 * value for name, value in scores.values.items()},
        status=status,
        key=key,
        n=len(captions),
        seeds=[seed] if isinstance(seed, int) else seed,
        data=records.Data(name=data.name, fingerprint=data.fingerprint, split=split),
        signature=scores.signature or "",
        checkpoint=captioners.weights_sha256(model),
        wall_s=time.perf_counter() - began,
    )


def evaluate_runs(
    checkpoints: Sequence[Path],
    data: CaptionData,
    *,
    status: str,
    row_suffix: str = "",
    split: str = "test",
    beam_size: int = 3,
    tokeniser: str | None = None,
) -> Record[Evaluation]:
    """The scores of a run, or of an ensemble of runs, on a split of ``data``.

    Args:
        checkpoints: runs' folders, or checkpoints in them.
        row_suffix: of the row's name, for changed features.
        tokeniser: of the scores; None: PTB for words, else the vocabulary's own.

    Raises:
        InputError: a bad run, or its tokens or features do not fit ``data``.
    """
    models, vocabulary = captioners.load_all(checkpoints)
    members = [model for model in models if not isinstance(model, OnnxCaptioner)]
    if len(members) < len(models):
        raise InputError("--checkpoint: an exported model has no training to record, expected runs")
    model = captioners.together(members)
    assert not isinstance(model, OnnxCaptioner)
    data.check_tokens(vocabulary, checkpoints[0])
    trainings = [_training(place) for place in checkpoints]
    paper, table, row = place_of(members)
    own = vocabulary.tokeniser
    tokeniser = tokeniser or ("ptb" if own == "words" else own)
    return evaluate(
        Evaluation,
        model,
        vocabulary,
        data,
        paper=paper,
        table=table,
        row=row + row_suffix,
        status=status,
        key=records.key_of(
            evaluate,
            captioners.weights_sha256(model),
            data.fingerprint,
            split,
            beam_size,
            MAX_LENGTH,
            tokeniser,
            java.available(),
        ),
        seed=[training["config"]["seed"] for training in trainings],
        split=split,
        beam_size=beam_size,
        tokeniser=tokeniser,
        details=_details(members, trainings),
        progress=True,
    )


def _training(place: Path) -> dict[str, Any]:
    """The training of a checkpoint's run, as fields of `kinds.Evaluation`."""
    folder = RunFolder(place if place.is_dir() else place.parent)
    log, config = folder.read_log(), folder.read_config()
    validations = [entry for entry in log if entry["kind"] == "validation"]
    steps = [entry for entry in log if entry["kind"] == "steps"]
    return {
        "config": config,
        "epochs": validations[-1]["epoch"] + 1 if validations else 0,
        "training_seconds": log[-1]["seconds"] if log else 0.0,
        "validations": [
            {"epoch": entry["epoch"] + 1, "CIDEr-D": entry["CIDEr-D"]}
            for entry in validations
            if "CIDEr-D" in entry
        ],
        "losses": [{"step": entry["step"], "loss": entry["loss"]} for entry in steps],
    }


def _details(
    members: Sequence[BaseCaptioner], trainings: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """The training of a model; for an ensemble each member's, with summed epochs and times."""
    if len(members) == 1:
        return trainings[0]
    return {
        "members": [
            {"checkpoint": captioners.weights_sha256(member), **training}
            for member, training in zip(members, trainings, strict=True)
        ],
        "epochs": sum(training["epochs"] for training in trainings),
        "training_seconds": sum(training["training_seconds"] for training in trainings),
        "validations": [],
    }
