"""``captionbench evaluate``: caption a split with a trained model, score it, keep the record."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks import records
from benchmarks.cli import data_options
from benchmarks.cli.options import add_beam_size
from benchmarks.scoring import quality
from benchmarks.scoring.evaluate import evaluate_runs


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
        InputError: bad input, by name; nothing is recorded then.
    """
    record = evaluate_runs(
        arguments.checkpoint,
        data_options.load(arguments),
        status="embedded" if arguments.scenes else "other data",
        row_suffix=", features replaced by their mean" if arguments.mean_features else "",
        split=arguments.split,
        beam_size=arguments.beam_size,
        tokeniser=arguments.tokeniser,
    )
    records.append([record], records.LOCAL / f"{record.kind}.jsonl")
    if arguments.json:
        print(json.dumps(records.to_json(record), indent=1))
    else:
        for name, value in record.values.items():
            print(f"{name:10} {value:7.2f}")
        print(record.signature)
    return 0
