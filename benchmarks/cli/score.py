"""``captionbench score``: score predicted captions against references."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks.cli.options import add_json
from benchmarks.cli.terminal import progress
from benchmarks.data.captions import read_references
from benchmarks.data.coco import read_predictions
from benchmarks.scoring.quality import METRICS, TOKENISERS, Scores, score


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--references",
        type=Path,
        required=True,
        metavar="FILE",
        help="references in Karpathy's layout or COCO's caption format",
    )
    parser.add_argument("--split", help="the split of Karpathy's layout; needed if it has several")
    parser.add_argument(
        "--predictions",
        type=Path,
        required=True,
        metavar="FILE",
        help="one caption an image in COCO's result format",
    )
    parser.add_argument(
        "--tokeniser",
        choices=TOKENISERS,
        default="ptb",
        help="ptb, as published scores (needs Java), or words; default ptb",
    )
    parser.add_argument(
        "--metrics",
        nargs="+",
        default=METRICS,
        metavar="METRIC",
        help=f"some of {', '.join(METRICS)}; default all",
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the scores; 1 if none of them could be computed."""
    references = read_references(arguments.references, arguments.split)
    predictions = read_predictions(arguments.predictions)
    with progress() as say:
        say(f"{len(predictions):,} captions scored by {', '.join(arguments.metrics)}")
        scores = score(
            references,
            predictions,
            tokeniser=arguments.tokeniser,
            metrics=arguments.metrics,
            source=str(arguments.predictions),
        )
    print(_json(scores) if arguments.json else _text(scores))
    return 0 if scores.values else 1


def _json(scores: Scores) -> str:
    """The scores times 100 under the metrics' names, null where missing."""
    values = {metric: 100 * value for metric, value in scores.values.items()}
    every = {**values, **dict.fromkeys(scores.missing)}
    about = {
        "images": scores.images,
        "tokeniser": scores.tokeniser,
        "signature": scores.signature,
        "missing": scores.missing,
    }
    columns = {metric: every[metric] for metric in METRICS if metric in every}
    return json.dumps({**columns, **about}, allow_nan=False, indent=2)


def _text(scores: Scores) -> str:
    lines = [f"images {scores.images:,}, tokeniser {scores.tokeniser}, scores x 100"]
    for metric in METRICS:
        if metric in scores.values:
            lines.append(f"{metric:<10}{100 * scores.values[metric]:7.2f}")
    for reason in dict.fromkeys(scores.missing.values()):
        metrics = [metric for metric in METRICS if scores.missing.get(metric) == reason]
        lines.append(f"missing   {', '.join(metrics)}: {reason}")
    if scores.signature:
        lines.append(f"signature {scores.signature}")
    return "\n".join(lines)
