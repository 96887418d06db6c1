"""Diversity of an image's captions: self-BLEU and self-METEOR (Middle-Out, Table 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.errors import InputError
from benchmarks.scoring.quality import Scores, score

METRICS = ("B4", "METEOR")


def self_scores(
    captions: Mapping[int, Sequence[str]],
    *,
    tokeniser: str = "ptb",
    metrics: Sequence[str] = METRICS,
) -> Scores:
    """Score each caption with the others of its image as references; lower is more diverse.

    An image's value is the mean over its captions; the corpus value is the mean over images. METEOR
    is version 1.5, and in ``missing`` if it cannot run.

    Args:
        captions: for each ``image_id`` its generated captions, such as a beam.
        tokeniser: one of ``quality.TOKENISERS``.
        metrics: some of ``quality.METRICS`` that score single captions.

    Raises:
        InputError: as `quality.score`; no images, or an image with fewer than two captions.
    """
    for image_id, group in captions.items():
        if len(group) < 2:
            raise InputError(f"captions: image_id {image_id} has {len(group)}, expected at least 2")
    places = [(image_id, i) for image_id, group in captions.items() for i in range(len(group))]
    predictions = {key: captions[image_id][i] for key, (image_id, i) in enumerate(places)}
    references = {
        key: [*captions[image_id][:i], *captions[image_id][i + 1 :]]
        for key, (image_id, i) in enumerate(places)
    }
    each = score(references, predictions, tokeniser=tokeniser, metrics=metrics, source="captions")
    scores = Scores(len(captions), tokeniser, missing=each.missing)
    for metric, per_caption in each.per_image.items():
        sums = dict.fromkeys(captions, 0.0)
        for key, (image_id, _) in enumerate(places):
            sums[image_id] += per_caption[key] / len(captions[image_id])
        scores.per_image[metric] = sums
        scores.values[metric] = sum(sums.values()) / len(sums)
    return scores
