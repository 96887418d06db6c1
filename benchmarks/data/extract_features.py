"""``captionbench features``: extract the features of photographs once, into hashed shards."""

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
"""Batch size of a backbone in each thread: larger ones exceed a CPU's cache."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_parallel(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Map ``function`` over the items with one thread a core; results are in order, prefetched.

    Each thread runs its operators on its own: intra-operator threads wait for each other, which
    takes most of the time where other programs use the cores too.
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
    """The file ``dataset_*.json`` in ``folder``, or in its subfolder flickr8k.

    Raises:
        InputError: no folder, or not exactly one such file in it.
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
    """Extract the features of a data set's photographs; those already in ``out`` are skipped.

    Args:
        images: zip files or folders of photographs; None: those beside the data set.
        backbone: a name in `BACKBONES`.
        batch_size: photographs in a thread's batch.

    Returns:
        The store, and how many photographs were newly extracted.

    Raises:
        InputError: a bad file, or ``out`` holds other features or cannot be written.
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
