"""``captionbench features``: photographs become features once, in checked shards."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from tqdm import tqdm

from benchmarks.data import Features, backbones, karpathy
from benchmarks.data.batches import chunks
from benchmarks.data.features import DTYPES, ShardedFeatures, ShardWriter
from benchmarks.data.karpathy import Photograph
from benchmarks.data.photographs import Photographs, images_beside
from benchmarks.errors import InputError
from torch_impl.models.vision import BACKBONES

DATA_VARIABLE = "CAPTIONBENCH_DATA"
PER_THREAD = 4
"""Pictures that a thread gives a backbone at a time: more would leave a CPU's cache."""

Item = TypeVar("Item")
Result = TypeVar("Result")


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


def in_parallel(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """``function`` of every item, in their order, a few made ahead in a thread a core.

    Each thread works alone: threads that share one operator wait for each other at its end, which
    costs most of the time where other programs use the cores too.
    """
    threads = torch.get_num_threads()
    pending: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        for item in items:
            pending.append(pool.submit(function, item))
            if len(pending) > 2 * threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def find_data_set(folder: Path | None) -> Path:
    """The data set in ``folder``, or in its folder named flickr8k.

    Raises:
        InputError: no folder, or not exactly one data set in it.
    """
    if folder is None:
        raise InputError(f"no data set named, expected --data, --karpathy or ${DATA_VARIABLE}")
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder, expected one with a data set")
    inner = folder / "flickr8k"
    found = sorted((inner if inner.is_dir() else folder).glob("dataset_*.json"))
    if len(found) != 1:
        raise InputError(f"{folder}: {len(found)} files dataset_*.json, expected exactly one")
    return found[0]
