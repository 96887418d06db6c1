"""``captionbench evaluate``: caption a split with a trained model, score it, keep the record."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import records
from benchmarks.data import data_options
from benchmarks.errors import InputError
from benchmarks.files import read_json
from benchmarks.kinds import Evaluation
from benchmarks.run_folder import RunFolder
from benchmarks.scoring import captioners, java, quality
from benchmarks.scoring.evaluate import MAX_LENGTH, evaluate, place_of
from benchmarks.scoring.onnx_captioner import OnnxCaptioner
from torch_impl.models import (
    AnyCaptioner,
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
    tokeniser = arguments.tokeniser or ("ptb" if own == "words" else own)
    record = evaluate(
        Evaluation,
        model,
        vocabulary,
        data,
        paper=paper,
        table=table,
        row=row,
        status="embedded" if arguments.scenes else "other data",
        key=records.key_of(
            evaluate,
            captioners.weights_sha256(model),
            data.fingerprint,
            arguments.split,
            arguments.beam_size,
            MAX_LENGTH,
            tokeniser,
            java.available(),
        ),
        seed=[training["config"]["seed"] for training in trainings],
        split=arguments.split,
        beam_size=arguments.beam_size,
        tokeniser=tokeniser,
        details=_details(members, trainings),
        progress=True,
    )
    records.append([record], records.LOCAL / f"{record.kind}.jsonl")
    if arguments.json:
        print(json.dumps(records.to_json(record), indent=1))
    else:
        for name, value in record.values.items():
            print(f"{name:10} {value:7.2f}")
        print(record.signature)
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
