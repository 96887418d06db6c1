"""``captionbench caption``: captions of pictures, or of a data set's split in COCO's format."""

from __future__ import annotations

from tqdm import tqdm

from benchmarks.data import Split
from benchmarks.data.batches import chunks, padded_features
from benchmarks.data.vocabulary import Vocabulary
from benchmarks.errors import InputError
from benchmarks.scoring import captioners
from benchmarks.scoring.captioners import AnyDecoder


def caption(
    model: AnyDecoder,
    vocabulary: Vocabulary,
    split: Split,
    beam_size: int = 3,
    batch_size: int = 50,
    *,
    max_length: int = 20,
    middle: int | None = None,
    progress: bool = False,
) -> dict[int, str]:
    """The best caption of each image by the model's own beam search; beam size 1 is greedy.

    For the sizes and the ``middle`` word see `captioners.search`; ``progress`` is a bar on stderr.

    Raises:
        InputError: a size is out of range, the features do not fit the model or are not finite.
    """
    d_feature, expected = split.store.d_feature, captioners.d_feature(model)
    if d_feature != expected:
        raise InputError(f"features are {d_feature} wide, the model expects {expected}")
    if batch_size < 1:
        raise InputError(f"batch size is {batch_size}, expected at least 1")
    captions: dict[int, str] = {}
    # no progress bar before the first batch, so that an early error is a single line
    bar = tqdm(total=len(split.image_ids), unit="image", disable=not progress, delay=0.1)
    with bar:
        for image_ids in chunks(split.image_ids, batch_size):
            features, lengths = padded_features(split.store, image_ids)
            found = captioners.search(
                model, features, lengths, beam_size=beam_size, max_length=max_length, middle=middle
            )
            for image_id, (best,) in zip(image_ids, found, strict=True):
                captions[image_id] = vocabulary.decode(best.tokens)
            bar.update(len(image_ids))
    return captions
