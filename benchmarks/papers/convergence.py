"""Why trained records cannot settle a comparison: predicted, diverged, or trained too briefly."""

from __future__ import annotations

import math
from typing import Any

from benchmarks.kinds import Digits, Losses, Rewards
from benchmarks.papers.paired import Rows
from benchmarks.records import PREDICTED, Record


def weakness(rows: Rows) -> str:
    """Why the records cannot settle a claim; empty if they can."""
    made = [r for runs in rows.values() for r in runs]
    if made[0].status == PREDICTED:
        return "predicted here, not measured"
    if any(map(_diverged, made)):
        return "a training diverged"
    if 2 * sum(map(_improving, made)) > len(made):
        return "trained too briefly (validation was still improving)"
    return ""


def _improving(record: Record[Any]) -> bool:
    """Whether a stage of training ended while validation was still improving."""
    details = record.details
    if isinstance(details, Digits):
        return max(details.history, key=lambda entry: entry["val"]) is details.history[-1]
    stages = getattr(details, "stages", None)
    if not stages:
        return hasattr(details, "training_seconds")  # a training without recorded stages
    best = [details.best] if hasattr(details, "best") else getattr(details, "validations", [])
    if not best:
        return stages[-1].get("patience") is None
    if len(stages) == 1:
        best = [max(best, key=lambda entry: entry[entry["metric"]])]
    if isinstance(details, Rewards):
        best = [*details.cross_entropy.validations[:1], *best[:1]]
    return any(
        one["epoch"] >= stage["optimisation"]["epochs"] - 1
        for one, stage in zip(best, stages, strict=False)
    )


def _diverged(record: Record[Any]) -> bool:
    """Whether the loss a word exceeds that of a uniform distribution."""
    if not isinstance(record.details, Losses):
        return False
    guessing = math.log(record.details.configuration["vocabulary_size"])
    losses = [value for name, value in record.values.items() if name.endswith("loss")]
    return any(loss > guessing for loss in losses)
