"""``captionbench score``: score predicted captions against references."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.cli.options import add_json
from benchmarks.cli.terminal import progress
from benchmarks.data.captions import read_references
from benchmarks.data.coco import read_predictions
from benchmarks.scoring.quality import METRICS, TOKENISERS, score
from benchmarks.scoring.score import as_json, as_text


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
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
    show = as_json if arguments.json else as_text
    print(show(scores))
    return 0 if scores.values else 1
