"""``captionbench evaluate``: caption a split with a trained model, score it, keep the record."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import records
from benchmarks.data import CaptionData, data_options
from benchmarks.data.vocabulary import Vocabulary
from benchmarks.errors import InputError
from benchmarks.files import read_json
from benchmarks.records import Record
from benchmarks.run_folder import RunFolder
from benchmarks.scoring import captioners, quality
from benchmarks.scoring.caption import caption
from benchmarks.scoring.onnx_captioner import OnnxCaptioner
from torch_impl.decoding.ensemble import Ensemble
from torch_impl.models import (
    AnyCaptioner,
    Configuration,
    MiddleOutConfiguration,
    RecurrentConfiguration,
)

PAPER, TABLE = "expansionnet_v2", "I"
"""The table that a model trained by cross-entropy is a row of."""
SCORES = "scores"
"""Where the scores of models stand that are a row of no paper's table."""
EXAMPLES = 8


def row_name(encoder: str, decoder: str) -> str:
    """A model's row in the ablations, by its mixers."""
    return f"{encoder} | {decoder}"


def place_of(models: Sequence[AnyCaptioner]) -> tuple[str, str, str]:
    """The paper, the table and the row that a model's scores stand in, or an ensemble's."""
    papers, rows = zip(*map(_described, models), strict=True)
    if len(models) > 1:
        return PAPER, SCORES, f"ensemble of {' + '.join(rows)}"
    table = TABLE if isinstance(models[0].configuration, Configuration) else SCORES
    return papers[0], table, rows[0]


def _described(model: AnyCaptioner) -> tuple[str, str]:
    """The paper of a model's family, and the model in a few words."""
    c = model.configuration
    if isinstance(c, RecurrentConfiguration):
        if c.read_only:
            return "lstm_readonly", f"read-only LSTM of {c.hidden_size} units, {c.read_only}"
        return "arnet", f"{'attentive ' if c.attentive else ''}LSTM of {c.hidden_size} units"
    if isinstance(c, MiddleOutConfiguration):
        kind = "middle-out" if c.middle_out else "sequence to sequence"
        attention = f"{c.self_attention} self-attention"
        return "middle_out", f"{kind} of {c.hidden_size} units, {attention}"
    return PAPER, row_name(c.encoder, c.decoder)


def evaluate(
    kind: str,
    model: AnyCaptioner | Ensemble,
    vocabulary: Vocabulary,
    data: CaptionData,
    *,
    row: str,
    status: str,
    key: str,
    seed: int | Sequence[int],
    paper: str = PAPER,
    table: str = TABLE,
    unit: float = 100,
    split: str = "test",
    beam_size: int = 3,
    max_length: int = 20,
    tokeniser: str = "ptb",
    examples: int = EXAMPLES,
    captions: Mapping[int, str] | None = None,
    details: Mapping[str, Any] | None = None,
    progress: bool = False,
) -> Record:
    """Caption ``split`` by beam search and score it by every metric that can run here.

    ``captions`` that were made already, by a search of another kind, are scored as they are.

    Returns:
        A record whose values are the scores times ``unit``, and whose details hold CIDEr-D by image
        (in the split's order, 0 to 10) and the first ``examples`` captions.
    """
    began = time.perf_counter()
    part = data_options.split(data, split)
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
        kind,
        paper=paper,
        table=table,
        row=row,
        values={name: unit * value for name, value in scores.values.items()},
        status=status,
        key=key,
        n=len(captions),
        seeds=[seed] if isinstance(seed, int) else seed,
        data={"name": data.name, "fingerprint": data.fingerprint, "split": split},
        signature=scores.signature,
        checkpoint=captioners.weights_sha256(model),
        details={
            **(details or {}),
            "beam_size": beam_size,
            "missing": scores.missing,
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "cider_d": [round(per_image[image], 6) for image in part.image_ids],
            "examples": [
                {"image": image, "caption": captions[image], "reference": part.references[image][0]}
                for image in shown
            ],
        },
        wall_s=time.perf_counter() - began,
    )


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "--checkpoint",
        type=Path,
        action="append",
        required=True,
        help="a run's folder (its best), or one checkpoint; may be repeated: an ensemble",
    )
    data_options.configure(parser)
    parser.add_argument("--split", default="test", help="the images to caption (default: test)")
    parser.add_argument("--beam-size", type=int, default=3, help="1 is greedy (default: 3)")
    parser.add_argument(
        "--tokeniser",
        choices=quality.TOKENISERS,
        help="what scores are of (default: ptb, or the vocabulary's tokens if they are no words)",
    )
    parser.add_argument("--json", action="store_true", help="print the record as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Evaluate a run and append its record to ``reports/local/records``.

    Raises:
        InputError: bad input, by name; nothing is recorded then.
    """
    places = arguments.checkpoint
    models, vocabulary = captioners.load_all(places)
    members = [model for model in models if not isinstance(model, OnnxCaptioner)]
    if len(members) < len(models):
        raise InputError("--checkpoint: an exported model has no training to record, expected runs")
    model = captioners.ensemble(members)
    data = data_options.load(arguments)
    trainings = [_training(place) for place in places]
    paper, table, row = place_of(members)
    own = vocabulary.tokeniser
    if data.vocabulary.tokeniser != own:
        tokens = data.vocabulary.tokeniser
        raise InputError(f"{places[0]}: trained on {own}, but {data.name} is captioned in {tokens}")
    if arguments.mean_features:
        row += ", features replaced by their mean"
    record = evaluate(
        "training",
        model,
        vocabulary,
        data,
        paper=paper,
        table=table,
        row=row,
        status="embedded" if arguments.scenes else "other data",
        key=records.key_of("training", captioners.weights_sha256(model), arguments.split),
        seed=[training["config"]["seed"] for training in trainings],
        split=arguments.split,
        beam_size=arguments.beam_size,
        tokeniser=arguments.tokeniser or ("ptb" if own == "words" else own),
        details=_details(members, trainings),
        progress=True,
    )
    records.append([record], records.LOCAL / "training.jsonl")
    if arguments.json:
        print(json.dumps(record, indent=1))
    else:
        for name, value in record["values"].items():
            print(f"{name:10} {value:7.2f}")
        print(record["signature"])
    return 0


def _training(place: Path) -> dict[str, Any]:
    """How the run of a checkpoint was trained."""
    folder = RunFolder(place if place.is_dir() else place.parent)
    log, config = folder.read_log(), read_json(folder.config, "the configuration of a run")
    if not isinstance(config, dict) or not isinstance(config.get("seed"), int):
        raise InputError(f"{folder.config}: not the configuration of a run, it names no seed")
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
    members: Sequence[AnyCaptioner], trainings: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """The training of a model; of an ensemble each member's, and what they took together."""
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
