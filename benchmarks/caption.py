"""``captionbench caption``: captions of a split by a trained model, in COCO's result format."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tqdm import tqdm

from benchmarks import data_options
from benchmarks.batches import chunks, padded_features
from benchmarks.datasets import Split
from benchmarks.datasets.vocabulary import Vocabulary
from benchmarks.errors import InputError
from benchmarks.files import write_atomically
from benchmarks.run_folder import load_captioner
from torch_impl.decoding import beam_search
from torch_impl.models import AnyCaptioner


def caption(
    model: AnyCaptioner,
    vocabulary: Vocabulary,
    split: Split,
    beam_size: int = 3,
    batch_size: int = 50,
    *,
    max_length: int = 20,
    progress: bool = False,
) -> dict[int, str]:
    """The best caption of each image by beam search; beam size 1 is greedy.

    Args:
        model: is put into evaluation mode, on the device it is on.
        vocabulary: the words of its ids.
        split: the images.
        beam_size: hypotheses kept for each image.
        batch_size: images at a time.
        max_length: of a caption in tokens, the start included.
        progress: show a bar on stderr.

    Raises:
        InputError: a size is out of range, the features do not fit the model or are not finite.
    """
    d_feature, expected = split.features.d_feature, model.configuration.d_feature
    if d_feature != expected:
        raise InputError(f"features are {d_feature} wide, the model expects {expected}")
    if batch_size < 1:
        raise InputError(f"batch size is {batch_size}, expected at least 1")
    model.eval()
    device = next(model.parameters()).device
    captions: dict[int, str] = {}
    with tqdm(total=len(split.image_ids), unit="image", disable=not progress) as bar:
        for image_ids in chunks(split.image_ids, batch_size):
            features, lengths = padded_features(split.features, image_ids)
            try:
                found = beam_search(
                    model,
                    features.to(device),
                    lengths.to(device),
                    beam_size=beam_size,
                    max_length=max_length,
                )
            except ValueError as error:
                raise InputError(str(error)) from error
            for image_id, (best,) in zip(image_ids, found, strict=True):
                captions[image_id] = vocabulary.decode(best.tokens)
            bar.update(len(image_ids))
    return captions


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "--checkpoint",
        type=Path,
        required=True,
        help="a run's folder (its best), or one checkpoint",
    )
    data_options.configure(parser)
    parser.add_argument("--split", default="test", help="the images to caption (default: test)")
    parser.add_argument("--beam-size", type=int, default=3, help="1 is greedy (default: 3)")
    parser.add_argument("--batch-size", type=int, default=50, help="images at a time (default: 50)")
    parser.add_argument(
        "--max-length", type=int, default=20, help="tokens, the start included (default: 20)"
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="the JSON file to write (COCO's result format)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Caption a split and write the file.

    Raises:
        InputError: bad input, by name; the file is written whole or not at all.
    """
    model, vocabulary = load_captioner(arguments.checkpoint)
    data = data_options.load(arguments)
    split = data_options.split(data, arguments.split)
    captions = caption(
        model,
        vocabulary,
        split,
        arguments.beam_size,
        arguments.batch_size,
        max_length=arguments.max_length,
        progress=True,
    )
    with write_atomically(arguments.out) as file:
        json.dump([{"image_id": i, "caption": text} for i, text in captions.items()], file)
    print(f"{arguments.out}: {len(captions)} captions, beam {arguments.beam_size}", file=sys.stderr)
    return 0
