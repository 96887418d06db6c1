"""The discrepancy between a captioner's training and inference (ARNet 10-12), and its scale.

Any captioner's hidden state is the input of its vocabulary layer; for a middle-out model, the last
states of both decoders, concatenated. States of different models lie in different spaces, so their
distances do not compare directly. For scale, besides the paper's two distances, we measure those
between two references of an image, and between the references of two images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.data import CaptionData, Split
from benchmarks.data.batches import chunks, padded_features, padded_tokens
from benchmarks.errors import InputError
from torch_impl.decoding.middle_out import middle_out_beam_search
from torch_impl.decoding.search import beam_search
from torch_impl.models import BaseCaptioner, MiddleOutCaptioner
from torch_impl.recurrent.auto_reconstructor import (
    cosine_distance,
    last_states,
    mean_centroid_distance,
    point_wise_distance,
)

CENTROID, POINTS = "d_mc", "d_pw"
REFERENCES, IMAGES = "d_pw, two references", "d_pw, two images"


@dataclass(frozen=True)
class LastStates:
    """The last hidden states of a split's captions, (N, d) each, in float64."""

    training: Tensor  # of each image's first reference, teacher-forced: U of eq. 11
    inference: Tensor  # of its caption by beam search: V
    second: Tensor | None  # of its second reference; None if some image has only one

    @property
    def values(self) -> dict[str, float]:
        """The distances by name."""
        U, V = self.training, self.inference
        distances = {
            CENTROID: mean_centroid_distance(U, V),
            POINTS: point_wise_distance(U, V),
            IMAGES: point_wise_distance(U, U.roll(1, 0)),
        }
        if self.second is not None:
            distances[REFERENCES] = point_wise_distance(U, self.second)
        return {name: distance.item() for name, distance in distances.items()}

    @property
    def shares(self) -> dict[str, list[float]]:
        """Each image's share of d_mc and d_pw, for intervals over images; their means are those.

        d_mc is not a mean over images: its shares are a first-order expansion in the images'
        weights.
        """
        U, V = self.training, self.inference
        with torch.enable_grad():
            centroids = [X.mean(0).requires_grad_() for X in (U, V)]
            distance = cosine_distance(*centroids)
            by_u, by_v = torch.autograd.grad(distance, centroids)
        # no term for the centroids themselves: along them the gradient of a cosine is zero
        shares = distance.detach() + U @ by_u + V @ by_v
        return {CENTROID: shares.tolist(), POINTS: cosine_distance(U, V).tolist()}


@torch.no_grad()
def measure(
    model: BaseCaptioner,
    data: CaptionData,
    split: str,
    *,
    beam_size: int,
    max_length: int,
    batch_size: int = 50,
) -> LastStates:
    """The hidden states that predict the last token of every image's captions.

    Args:
        model: is put into evaluation mode, on its device.
        beam_size: of the beam search for the model's own captions.
        max_length: of a caption in tokens, start included, or of a half with the middle word;
            references are cut to it.

    Raises:
        InputError: a middle-out model, and the split has no captions in generation order
            (``targets``).
    """
    part: Split = data.splits[split]
    two_sides = isinstance(model, MiddleOutCaptioner) and model.configuration.middle_out
    if two_sides and part.targets is None:
        raise InputError(
            f"a captioner of two sides reads captions from the middle, and those of {data.name} "
            "are from left to right"
        )
    model.eval()
    device = next(model.parameters()).device

    def true(image: int) -> Sequence[list[int]]:
        if part.targets is not None:
            return part.targets[image]
        tokens = map(data.vocabulary.tokenise, part.references[image])
        return [data.vocabulary.encode(words)[:max_length] for words in tokens]

    references = {image: true(image) for image in part.image_ids}
    several = all(len(of) > 1 for of in references.values())
    found: dict[str, list[Tensor]] = {"training": [], "inference": [], "second": []}
    for image_ids in chunks(part.image_ids, batch_size):
        features, lengths = (x.to(device) for x in padded_features(part.store, image_ids))
        captions = {
            "training": [references[image][0] for image in image_ids],
            "inference": _own(model, features, lengths, beam_size, max_length),
        }
        if several:
            captions["second"] = [references[image][1] for image in image_ids]
        for name, of in captions.items():
            sizes = torch.tensor([len(caption) for caption in of])
            tokens = padded_tokens(of).to(device)
            states = last_states(model, features, lengths, tokens, sizes, 1 + two_sides)
            found[name].append(states.double())
    joined = {name: torch.cat(states).cpu() for name, states in found.items() if states}
    return LastStates(joined["training"], joined["inference"], joined.get("second"))


def _own(
    model: BaseCaptioner, features: Tensor, lengths: Tensor, beam_size: int, max_length: int
) -> list[list[int]]:
    """The model's own captions, in generation order."""
    if isinstance(model, MiddleOutCaptioner) and model.configuration.middle_out:
        side_order = model.configuration.side_order
        halves = middle_out_beam_search(
            model, features, lengths, beam_size=beam_size, max_length=max_length
        )
        return [best.generated(side_order, model.pad_id) for (best,) in halves]
    found = beam_search(model, features, lengths, beam_size=beam_size, max_length=max_length)
    return [best.tokens for (best,) in found]
