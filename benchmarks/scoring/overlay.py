"""Overlays of a captioner's attention for each word (v1 Figure 6, v2 Figure 4)."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import cast

import torch
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from benchmarks.data import CaptionData
from benchmarks.errors import InputError
from benchmarks.kinds import Attention, Example
from torch_impl.layers.attention import record_attention_weights
from torch_impl.layers.transformer import DecoderLayer
from torch_impl.models import Captioner

COLUMNS = 5
PANEL = 2.2
"""Width of a panel in inches."""
LARGEST = 448
"""Maximum longer side of a drawn picture, in pixels."""


@torch.no_grad()
def looks(
    model: Captioner, features: Tensor, tokens: Sequence[int], head: int | None = None
) -> Tensor:
    """The attention weights of the decoder's last cross-attention for each token after the start.

    Args:
        model: in evaluation mode.
        features: (L, d_feature) of one image.
        tokens: T of them, start included.
        head: an index; None: the mean over heads.

    Returns:
        (T - 1, L); every row sums to 1.

    Raises:
        InputError: there is no such head.
    """
    attention = cast(DecoderLayer, model.decoder.layers[-1]).cross_attention
    if head is not None and not 0 <= head < attention.num_heads:
        raise InputError(f"head is {head}, expected 0 to {attention.num_heads - 1}")
    read = torch.tensor(tokens[:-1], device=features.device)
    with record_attention_weights(attention) as seen:
        model(features[None], read[None])
    ((weights,),) = seen
    return weights.mean(0) if head is None else weights[head]


def attention(model: Captioner, data: CaptionData, example: Example, split: str) -> Attention:
    """Each head's weights of the last cross-attention, for each word of an image's caption."""
    words = data.vocabulary.tokenise(example.caption)
    features = data.split(split).store.features(example.image)
    tokens, rows = data.vocabulary.encode(words), torch.from_numpy(features)
    weights = [
        looks(model, rows, tokens, head)[: len(words)]
        for head in range(model.configuration.num_heads)
    ]
    rounded = [[[round(w, 4) for w in word] for word in of_head.tolist()] for of_head in weights]
    return Attention(image=example.image, words=words, weights=rounded)


def draw(picture: Image.Image, words: Sequence[str], weights: Tensor) -> bytes:
    """A PNG: the picture, and a heat map of each word's ``weights`` (words, L) over it.

    Each word has its own colour scale, from its least to its greatest weight. The L rows of
    features are a square grid in row-major order that covers the picture.

    Raises:
        InputError: L is not a square number.
    """
    rows = weights.shape[1]
    side = math.isqrt(rows)
    if side * side != rows:
        raise InputError(f"an overlay of {rows} rows of features, expected a square grid of them")
    picture = picture.copy()
    picture.thumbnail((LARGEST, LARGEST))
    columns = min(COLUMNS, 1 + len(words))
    lines = -(-(1 + len(words)) // columns)
    height = PANEL * picture.height / picture.width
    figure = Figure(figsize=(PANEL * columns, (height + 0.35) * lines), layout="constrained")
    panels = list(figure.subplots(lines, columns, squeeze=False).flat)
    for axes in panels:
        axes.set_axis_off()
    everything = (0, picture.width, picture.height, 0)
    grids = [None, *weights.cpu().float().view(-1, side, side).numpy()]
    for axes, word, grid in zip(panels, ["", *words], grids, strict=False):
        axes.imshow(picture)
        axes.set_title(word, fontsize=10, parse_math=False)
        if grid is not None:
            axes.imshow(
                grid, extent=everything, cmap="inferno", alpha=0.65, interpolation="bilinear"
            )
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=100)
    return buffer.getvalue()
