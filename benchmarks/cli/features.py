"""``captionbench features``: extract features of photographs once, in checked shards."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from benchmarks.cli.options import add_data, add_images, add_json
from benchmarks.data.extract_features import PER_THREAD, extract, find_data_set
from benchmarks.data.features import DTYPES
from benchmarks.files import locked
from torch_impl.models.vision import BACKBONES


def configure(parser: argparse.ArgumentParser) -> None:
    add_data(
        parser,
        "a folder with one dataset_*.json in Karpathy's layout and its photographs, or one that "
        "has such a folder named flickr8k",
    )
    parser.add_argument(
        "--karpathy", type=Path, metavar="JSON", help="the data set, instead of --data"
    )
    add_images(parser)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where shards go")
    parser.add_argument("--backbone", choices=BACKBONES, default="efficientnet_lite0")
    parser.add_argument(
        "--batch-size",
        type=int,
        default=PER_THREAD,
        help=f"photographs at a time, a thread (default: {PER_THREAD})",
    )
    parser.add_argument("--dtype", choices=DTYPES, default="float16", help="dtype of the shards")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Extract what is not on disk yet, and say how fast."""
    start = time.perf_counter()
    with locked(arguments.out, wait=False):
        store, extracted = extract(
            arguments.karpathy or find_data_set(arguments.data),
            arguments.out,
            images=arguments.images,
            backbone=arguments.backbone,
            batch_size=arguments.batch_size,
            dtype=arguments.dtype,
        )
    seconds, images = time.perf_counter() - start, len(store.image_ids)
    if arguments.json:
        found = {"folder": str(arguments.out), "images": images, "extracted": extracted}
        print(json.dumps({**found, "fingerprint": store.fingerprint, "seconds": seconds}))
        return 0
    print(f"{arguments.out}: features of {images} images, fingerprint {store.fingerprint}")
    if extracted:
        rate = extracted / seconds
        print(f"{extracted} extracted in {seconds:.1f} s, {rate:.1f} images a second")
    return 0
