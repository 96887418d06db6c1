"""``captionbench features``: photographs become features once, in checked shards."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from benchmarks.data import Features, backbones, karpathy
from benchmarks.data.batches import chunks
from benchmarks.data.extract_features import DATA_VARIABLE, PER_THREAD, find_data_set, in_parallel
from benchmarks.data.features import DTYPES, ShardedFeatures, ShardWriter
from benchmarks.data.karpathy import Photograph
from benchmarks.data.photographs import Photographs, images_beside
from benchmarks.errors import InputError
from torch_impl.models.vision import BACKBONES


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        default=os.environ.get(DATA_VARIABLE),
        help="a folder with one dataset_*.json in Karpathy's layout and its photographs, or one "
        f"that has such a folder named flickr8k (default: ${DATA_VARIABLE})",
    )
    parser.add_argument(
        "--karpathy", type=Path, metavar="JSON", help="the data set, instead of --data"
    )
    parser.add_argument(
        "--images",
        type=Path,
        nargs="+",
        metavar="PLACE",
        help="zip files or folders of photographs (default: those beside the data set)",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where shards go")
    parser.add_argument("--backbone", choices=BACKBONES, default="efficientnet_lite0")
    parser.add_argument(
        "--batch",
        type=int,
        default=PER_THREAD,
        help=f"photographs at a time, a thread (default: {PER_THREAD})",
    )
    parser.add_argument("--dtype", choices=DTYPES, default="float16", help="of the shards")


def run(arguments: argparse.Namespace) -> int:
    """Extract what is not on disk yet, and say how fast."""
    if arguments.batch < 1:
        raise InputError(f"--batch is {arguments.batch}, expected at least 1")
    path = arguments.karpathy or find_data_set(arguments.data)
    photographs = karpathy.read_photographs(path)
    images = Photographs(arguments.images or images_beside(path))
    images.require(photograph.filename for photograph in photographs)
    backbone = backbones.load(arguments.backbone)

    signature = {**backbone.signature, "photographs": karpathy.sources(photographs)}
    writer = ShardWriter(arguments.out, signature, backbone.d_feature, dtype=arguments.dtype)
    for reason in writer.dropped:
        print(f"captionbench: extracting again: {reason}", file=sys.stderr)
    todo = [photograph for photograph in photographs if photograph.image_id not in writer.done]
    start = time.perf_counter()

    def extract(batch: Sequence[Photograph]) -> list[tuple[int, Features]]:
        pixels = [images.read(photograph.filename, backbone.image_size) for photograph in batch]
        features = backbone(torch.from_numpy(np.stack(pixels))).numpy()
        return [
            (photograph.image_id, rows) for photograph, rows in zip(batch, features, strict=True)
        ]

    with tqdm(total=len(photographs), initial=len(writer.done), unit="image") as progress:
        for extracted in in_parallel(extract, chunks(todo, arguments.batch)):
            for image_id, features in extracted:
                writer.add(image_id, features)
            progress.update(len(extracted))
        writer.flush()
    seconds = time.perf_counter() - start
    store = ShardedFeatures(arguments.out)
    print(f"{arguments.out}: features of {len(store)} images, fingerprint {store.fingerprint}")
    if todo:
        rate = len(todo) / seconds
        print(f"{len(todo)} extracted in {seconds:.1f} s, {rate:.1f} images a second")
    return 0
