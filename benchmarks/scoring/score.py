"""``captionbench score``: score predicted captions against references."""

from __future__ import annotations

import json

from benchmarks.scoring.quality import METRICS, Scores


def as_json(scores: Scores) -> str:
    """The scores times 100 under the metrics' names, null where missing."""
    values = {metric: 100 * value for metric, value in scores.values.items()}
    absent = dict.fromkeys(scores.missing)
    found = {**values, **absent}
    columns = {metric: found[metric] for metric in METRICS if metric in found}
    about = {
        "images": scores.images,
        "tokeniser": scores.tokeniser,
        "signature": scores.signature,
        "missing": scores.missing,
    }
    return json.dumps({**columns, **about}, allow_nan=False, indent=2)


def as_text(scores: Scores) -> str:
    """The scores times 100, a line each."""
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
