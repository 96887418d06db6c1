"""``captionbench evaluate``: caption a split with a trained model, score it, keep the record."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from msgspec import structs

from benchmarks import records
from benchmarks.cli import data_options
from benchmarks.cli.options import add_beam_size, add_checkpoint
from benchmarks.data import CaptionData
from benchmarks.kinds import Evaluation
from benchmarks.records import Record
from benchmarks.scoring import captioners, overlay, quality
from benchmarks.scoring.evaluate import evaluate_runs
from torch_impl.models import Captioner


def configure(parser: argparse.ArgumentParser) -> None:
    add_checkpoint(parser, "or one checkpoint; may be repeated: an ensemble")
    data_options.configure(parser)
    parser.add_argument("--split", default="test", help="the images to caption (default: test)")
    add_beam_size(parser)
    parser.add_argument(
        "--tokeniser",
        choices=quality.TOKENISERS,
        help="what scores are of (default: ptb, or the vocabulary's tokens if they are no words)",
    )
    parser.add_argument("--json", action="store_true", help="print the record as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Evaluate a run and append its record to ``reports/local/records``.

    Raises:
        InputError: invalid options or files; nothing is recorded then.
    """
    data = data_options.load(arguments)
    record = evaluate_runs(
        arguments.checkpoint,
        data,
        status="embedded" if arguments.scenes else "other data",
        row_suffix=", features replaced by their mean" if arguments.mean_features else "",
        split=arguments.split,
        beam_size=arguments.beam_size,
        tokeniser=arguments.tokeniser,
    )
    record = _with_attention(record, arguments.checkpoint, data, arguments.split)
    out = records.LOCAL / f"{record.kind}.jsonl"
    records.append([record], out)
    if arguments.json:
        print(json.dumps(records.to_json(record), indent=1))
    else:
        for name, value in record.values.items():
            print(f"{name:10} {value:7.2f}")
        print(record.signature)
        print(f"{out}: the record")
    return 0


def _with_attention(
    record: Record[Evaluation], checkpoints: Sequence[Path], data: CaptionData, split: str
) -> Record[Evaluation]:
    """The record with attention weights for figures; ensembles and LSTMs have none."""
    (model, *others), _ = captioners.load_all(checkpoints)
    if others or not isinstance(model, Captioner) or not record.details.examples:
        return record
    looked = overlay.attention(model, data, record.details.examples[0], split)
    return records.replace(record, details=structs.replace(record.details, attention=looked))
