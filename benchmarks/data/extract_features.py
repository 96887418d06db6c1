"""``captionbench features``: photographs become features once, in checked shards."""

from __future__ import annotations

import sys
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
from benchmarks.data.features import ShardedFeatures, ShardWriter
from benchmarks.data.karpathy import Photograph
from benchmarks.data.photographs import Photographs, images_beside
from benchmarks.errors import InputError

DATA_VARIABLE = "CAPTIONBENCH_DATA"
PER_THREAD = 4
"""Pictures that a thread gives a backbone at a time: more would leave a CPU's cache."""

Item = TypeVar("Item")
Result = TypeVar("Result")


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


def extract(
    path: Path,
    out: Path,
    *,
    images: Sequence[Path] | None = None,
    backbone: str = "efficientnet_lite0",
    batch_size: int = PER_THREAD,
    dtype: str = "float16",
) -> tuple[ShardedFeatures, int]:
    """The features of a data set's photographs; those already in ``out`` are skipped.

    Args:
        images: zip files or folders of photographs; those beside the data set if None.
        backbone: a name in `BACKBONES`.
        batch_size: photographs at a time, a thread.

    Returns:
        The store, and how many photographs were extracted now.

    Raises:
        InputError: a bad file, or a folder that holds other features or cannot be written.
    """
    if batch_size < 1:
        raise InputError(f"--batch-size is {batch_size}, expected at least 1")
    photographs = karpathy.read_photographs(path)
    places = Photographs(images or images_beside(path))
    names = [photograph.filename for photograph in photographs]
    places.require(names)
    network = backbones.load(backbone)
    signature = {
        **network.signature,
        "photographs": karpathy.sources(photographs),
        "pictures_sha256": places.fingerprint(names),
    }
    writer = ShardWriter(out, signature, network.d_feature, dtype=dtype)
    for reason in writer.dropped:
        print(f"captionbench: extracting again: {reason}", file=sys.stderr)
    todo = [photograph for photograph in photographs if photograph.image_id not in writer.done]

    def features_of(batch: Sequence[Photograph]) -> list[tuple[int, Features]]:
        pixels = [places.read(photograph.filename, network.image_size) for photograph in batch]
        made = network(torch.from_numpy(np.stack(pixels))).numpy()
        return [(photograph.image_id, rows) for photograph, rows in zip(batch, made, strict=True)]

    with tqdm(total=len(photographs), initial=len(writer.done), unit="image") as progress:
        for extracted in in_parallel(features_of, chunks(todo, batch_size)):
            for image_id, features in extracted:
                writer.add(image_id, features)
            progress.update(len(extracted))
        writer.flush()
    return ShardedFeatures(out), len(todo)
