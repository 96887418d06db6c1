"""Caption scores as papers print them, by pycocoevalcap: BLEU, METEOR, ROUGE-L, CIDEr-D, SPICE."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version

from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.rouge.rouge import Rouge

from benchmarks.data import vocabulary
from benchmarks.errors import InputError
from benchmarks.scoring import java

BLEU = ("B1", "B2", "B3", "B4")
METRICS = (*BLEU, "METEOR", "ROUGE-L", "CIDEr-D", "SPICE")


def _by(split: Callable[[str], list[str]]) -> Callable[[Sequence[str]], list[str]]:
    """Join the tokens of each caption with spaces."""
    return lambda captions: [" ".join(split(caption)) for caption in captions]


TOKENISERS: dict[str, Callable[[Sequence[str]], list[str]]] = {
    "ptb": java.ptb_tokenise,
    **{name: _by(split) for name, (split, _) in vocabulary.TOKENISERS.items()},
}
"""``ptb``: Penn Treebank tokens, as in published scores; needs Java. ``words`` and ``characters``:
the tokens of training; their scores do not compare with a paper's."""


@dataclass(frozen=True)
class Scores:
    """The scores of a set of predictions, as fractions (reports print them times 100)."""

    images: int  # number of scored images
    tokeniser: str  # one of `TOKENISERS`
    # corpus scores by metric, without unavailable ones
    values: dict[str, float] = field(default_factory=dict)
    # by metric, the score of each image. The corpus score is the mean for CIDEr-D, ROUGE-L and
    # SPICE; BLEU and METEOR pool counts over the corpus.
    per_image: dict[str, dict[int, float]] = field(default_factory=dict)
    # by metric, why it is unavailable
    missing: dict[str, str] = field(default_factory=dict)

    @property
    def signature(self) -> str | None:
        """How CIDEr-D was computed, see `cider_signature`; None if it was not."""
        if "CIDEr-D" not in self.values:
            return None
        return cider_signature(self.images, self.tokeniser)


def cider_signature(images: int, tokeniser: str) -> str:
    """How a CIDEr-D score was computed, in the style of SacreEOS (v2, footnote 2).

    v2's ``STANDARD_wInit+Cider-D[n4,s6.0]+average[nspis5]+1.0.0`` is of a reward: the end token is
    in captions and references. Ours is of a score: no end token (``NO<EOS>``), document frequencies
    initialised (``wInit``) from the references of the scored ``images``, no baseline, the
    tokeniser, and the package.
    """
    return (
        f"NO<EOS>_wInit+Cider-D[n4,s6.0]+df[{images}]+{tokeniser}"
        f"+pycocoevalcap{version('pycocoevalcap')}"
    )


def _check(
    references: Mapping[int, Sequence[str]],
    predictions: Mapping[int, str],
    metrics: Sequence[str],
    source: str,
) -> None:
    unknown = [metric for metric in metrics if metric not in METRICS]
    if unknown or not metrics:
        named = repr(unknown[0]) if unknown else "none"
        raise InputError(f"metrics: {named} given, expected some of {', '.join(METRICS)}")
    if not predictions:
        raise InputError(f"{source}: none given, expected one for each image")
    for image_id, captions in references.items():
        if not captions:
            raise InputError(f"references: image_id {image_id} has none, expected at least one")
    strangers = [image_id for image_id in predictions if image_id not in references]
    if strangers:
        raise InputError(
            f"{source}: image_id {strangers[0]} has no references ({len(strangers):,} of "
            f"{len(predictions):,} predictions have none), expected an image of the split"
        )
    left_out = [image_id for image_id in references if image_id not in predictions]
    if left_out:
        raise InputError(
            f"{source}: image_id {left_out[0]} has no prediction ({len(left_out):,} of "
            f"{len(references):,} images have none), expected one for each image of the split"
        )


def score(
    references: Mapping[int, Sequence[str]],
    predictions: Mapping[int, str],
    *,
    tokeniser: str = "ptb",
    metrics: Iterable[str] = METRICS,
    source: str = "predictions",
) -> Scores:
    """Score one raw caption for each image against its raw references, by ``image_id``.

    Unavailable metrics, for example without Java, are in ``missing`` with the reason. Errors call
    the predictions ``source``, such as their file name.

    Raises:
        InputError: an unknown tokeniser or metric, no predictions, an image with a prediction but
            no references or vice versa, or no word in any reference.
    """
    metrics = tuple(metrics)
    if tokeniser not in TOKENISERS:
        raise InputError(f"tokeniser: {tokeniser!r}, expected one of {', '.join(TOKENISERS)}")
    _check(references, predictions, metrics, source)
    image_ids = list(references)
    scores = Scores(len(image_ids), tokeniser)
    try:
        words = TOKENISERS[tokeniser]
        flat = iter(words([caption for i in image_ids for caption in references[i]]))
        gts = {i: [next(flat) for _ in references[i]] for i in image_ids}
        candidates = words([predictions[i] for i in image_ids])
    except java.UnavailableError as why:
        reason = f"{why} (the tokeniser words needs none, but its scores are its own)"
        scores.missing.update(dict.fromkeys(metrics, reason))
        return scores
    if not any(caption for captions in gts.values() for caption in captions):
        raise InputError("references: no word in any of them after tokenising")
    res = {i: [candidate] for i, candidate in zip(image_ids, candidates, strict=True)}
    targets = list(gts.values())

    def keep(metric: str, value: float, each: Iterable[float]) -> None:
        scores.values[metric] = float(value)
        scores.per_image[metric] = dict(zip(image_ids, map(float, each), strict=True))

    @contextmanager
    def missing_if_unavailable(metric: str) -> Iterator[None]:
        try:
            yield
        except java.UnavailableError as why:
            scores.missing[metric] = str(why)

    with ExitStack() as stack:
        meteor = None
        if "METEOR" in metrics:  # by far the slowest: it runs in parallel to the others
            with missing_if_unavailable("METEOR"):
                meteor = stack.enter_context(java.meteor(candidates, targets))
        if any(metric in BLEU for metric in metrics):
            values, per_image = Bleu(4).compute_score(gts, res, verbose=0)
            for metric, value, each in zip(BLEU, values, per_image, strict=True):
                if metric in metrics:
                    keep(metric, value, each)
        if "ROUGE-L" in metrics:
            keep("ROUGE-L", *Rouge().compute_score(gts, res))
        if "CIDEr-D" in metrics:
            keep("CIDEr-D", *Cider().compute_score(gts, res))
        if "SPICE" in metrics:
            with missing_if_unavailable("SPICE"):
                keep("SPICE", *java.spice(candidates, targets))
        if meteor:
            with missing_if_unavailable("METEOR"):
                keep("METEOR", *meteor.result())
    return scores
