"""Batches of (image, caption) pairs: sampled, bucketed by length, padded, prefetched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from benchmarks.data import CaptionData, FeatureStore, Split
from benchmarks.data.features import ArrayFeatures
from benchmarks.data.pixels import Pixels
from benchmarks.data.vocabulary import PAD_ID, Vocabulary
from benchmarks.errors import InputError
from benchmarks.files import sha256
from torch_impl.training import Batch, ImageBatch, data_generator
from torch_impl.training.distributed import ProcessGroup

Item = TypeVar("Item")
Group = tuple[int, list[list[int]]]
"""An image and some of its captions, as token ids."""


class CaptionBatches:
    """The training batches of a split, determined by (seed, epoch, batch number).

    An epoch holds every caption once. Captions are sampled in groups of at most
    ``captions_per_image`` of one image, so that the image is encoded once a group; 1 gives the
    papers' independent pairs. Groups are shuffled, then sorted by length within windows of
    ``window`` batches, so that a batch needs little padding; then the batches are shuffled.

    Args:
        batch_size: captions a batch, rounded down to whole groups but at least one.
        captions_per_image: captions of one image that stay in one batch.
        max_length: of a caption, start token included, end token not; longer ones are cut.
        window: batches that are sorted together; 1 sorts nothing.
        process_group: shares each batch; the world size changes nothing else.

    Raises:
        InputError: the split has no captions, or a size is below 1.
    """

    def __init__(
        self,
        split: Split,
        vocabulary: Vocabulary,
        batch_size: int,
        *,
        captions_per_image: int = 1,
        max_length: int,
        seed: int = 0,
        window: int = 20,
        process_group: ProcessGroup = ProcessGroup(),  # noqa: B008 - alone
    ) -> None:
        for name, value in (
            ("batch size", batch_size),
            ("captions per image", captions_per_image),
            ("window", window),
        ):
            if value < 1:
                raise InputError(f"{name} is {value}, expected at least 1")
        self.split = split
        self.seed = seed
        self._groups_per_batch = max(1, batch_size // captions_per_image)
        self._captions_per_image = captions_per_image
        self._window = window
        self._process_group = process_group
        self._tokens = {
            image: split.targets[image]
            if split.targets is not None
            else [vocabulary.encode(vocabulary.tokenise(text)) for text in texts]
            for image in split.image_ids
            if (texts := split.references.get(image))
        }
        self.truncated = Counter(split.truncated)
        """How many "captions" and "sources" were cut to their maximum length."""
        if split.targets is None:
            lengths = (len(ids) for captions in self._tokens.values() for ids in captions)
            self.truncated["captions"] += sum(length > max_length + 1 for length in lengths)
            self._tokens = {
                image: [ids[: max_length + 1] for ids in captions]
                for image, captions in self._tokens.items()
            }
        self.captions = sum(map(len, self._tokens.values()))
        if not self.captions:
            raise InputError("the split to train on has no captions")
        sizes = map(len, self._tokens.values())
        groups = sum(-(-size // captions_per_image) for size in sizes)
        self._length = -(-groups // self._groups_per_batch)

    def __len__(self) -> int:
        """Batches an epoch."""
        return self._length

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """This rank's share of each batch of ``epoch``, from batch ``start`` on.

        The next one is prefetched in a thread; a share may have no images.

        Raises:
            InputError: an image has no features, or damaged ones.
        """
        return fetched_ahead(map(self._collate, self._plan(epoch)[start:]))

    def image_ids(self, epoch: int, position: int) -> list[int]:
        """The images of one batch, of all processes."""
        return [image for image, _ in self._plan(epoch)[position]]

    def _plan(self, epoch: int) -> list[list[Group]]:
        random = data_generator(self.seed, epoch)
        size = self._captions_per_image
        groups: list[Group] = []
        for image, captions in self._tokens.items():
            shuffled = [captions[i] for i in random.permutation(len(captions))]
            groups += [(image, shuffled[i : i + size]) for i in range(0, len(shuffled), size)]
        groups = [groups[i] for i in random.permutation(len(groups))]
        batches = [
            batch
            for window in chunks(groups, self._window * self._groups_per_batch)
            for batch in chunks(sorted(window, key=_longest), self._groups_per_batch)
        ]
        return [batches[i] for i in random.permutation(len(batches))]

    def _collate(self, batch: list[Group]) -> Batch:
        groups = self._process_group.shard(batch)
        if not groups:
            return Batch(*(torch.empty(0) for _ in Batch._fields))
        features, lengths = padded_features(self.split.store, [image for image, _ in groups])
        captions = [caption for _, group in groups for caption in group]
        image_index = [i for i, (_, group) in enumerate(groups) for _ in group]
        return Batch(features, lengths, padded_tokens(captions), torch.tensor(image_index))


def _longest(group: Group) -> int:
    return max(map(len, group[1]))


class ImageBatches:
    """Batches of a split's images with references, determined as those of `CaptionBatches`.

    An epoch holds every image once; a batch has its index in ``with_references``.

    Args:
        process_group: see `CaptionBatches`.

    Raises:
        InputError: the split has no captions, or the size is below 1.
    """

    def __init__(
        self,
        split: Split,
        batch_size: int,
        *,
        seed: int = 0,
        process_group: ProcessGroup = ProcessGroup(),  # noqa: B008 - alone
    ) -> None:
        if batch_size < 1:
            raise InputError(f"batch size is {batch_size}, expected at least 1")
        self.truncated = Counter(split.truncated)
        """See `CaptionBatches`; the references used for rewards are not cut."""
        self.split = split
        self.seed = seed
        self._batch_size = batch_size
        self._process_group = process_group
        self.with_references = images_with_references(split)

    def __len__(self) -> int:
        """Batches an epoch."""
        return -(-len(self.with_references) // self._batch_size)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[ImageBatch]:
        """This rank's share of each batch of ``epoch``, from batch ``start`` on.

        The next one is prefetched in a thread; a share may have no images.

        Raises:
            InputError: an image has no features, or damaged ones.
        """
        return fetched_ahead(map(self._collate, self._plan(epoch)[start:]))

    def image_ids(self, epoch: int, position: int) -> list[int]:
        """The images of one batch, of all processes."""
        return [self.with_references[place] for place in self._plan(epoch)[position]]

    def _plan(self, epoch: int) -> list[Sequence[int]]:
        order = data_generator(self.seed, epoch).permutation(len(self.with_references))
        return list(chunks(order.tolist(), self._batch_size))

    def _collate(self, batch: Sequence[int]) -> ImageBatch:
        places = self._process_group.shard(batch)
        if not places:
            return ImageBatch(*(torch.empty(0) for _ in ImageBatch._fields))
        image_ids = [self.with_references[place] for place in places]
        return ImageBatch(*padded_features(self.split.store, image_ids), torch.tensor(places))


def images_with_references(split: Split) -> list[int]:
    """The split's images that have references, in its order.

    Raises:
        InputError: there are none.
    """
    image_ids = [image_id for image_id in split.image_ids if split.references.get(image_id)]
    if not image_ids:
        raise InputError("the split to train on has no captions")
    return image_ids


def chunks(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    """``items`` in chunks of ``size``; the last one may be shorter."""
    return (items[i : i + size] for i in range(0, len(items), size))


def padded_features(store: FeatureStore, image_ids: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Zero-padded features (B, L, ...) of some images, and their lengths (B,).

    For a store of `Pixels`: the pixels, and the number of features the captioner makes of them.

    Raises:
        InputError: an image is not in the store, or its features are damaged.
    """
    rows = [store.features(image_id) for image_id in image_ids]
    if isinstance(store, Pixels):
        return torch.from_numpy(np.stack(rows)), torch.full((len(rows),), store.num_features)
    lengths = [len(row) for row in rows]
    features = np.zeros((len(rows), max(lengths), *rows[0].shape[1:]), rows[0].dtype)
    for row, target in zip(rows, features, strict=True):
        target[: len(row)] = row
    return torch.from_numpy(features), torch.tensor(lengths)


def padded_tokens(captions: Sequence[Sequence[int]]) -> Tensor:
    """Right-padded token ids (P, T)."""
    tokens = np.full((len(captions), max(map(len, captions))), PAD_ID, np.int64)
    for caption, target in zip(captions, tokens, strict=True):
        target[: len(caption)] = caption
    return torch.from_numpy(tokens)


def fetched_ahead(items: Iterable[Item]) -> Iterator[Item]:
    """``items``, the next one prefetched in a thread while the caller uses this one."""
    iterator = iter(items)
    with ThreadPoolExecutor(1) as thread:
        pending = thread.submit(next, iterator, None)
        while (item := pending.result()) is not None:
            pending = thread.submit(next, iterator, None)
            yield item


def without_images(data: CaptionData) -> CaptionData:
    """``data`` with every image's features replaced by the mean row of the train set.

    A model trained on it is the image-blind baseline.
    """
    train = data.splits["train"]
    total, rows = np.zeros(train.store.d_feature), 0
    for image_id in train.image_ids:
        features = train.store.features(image_id)
        total += features.sum(axis=0, dtype=np.float64)
        rows += len(features)
    mean = (total / rows).astype(np.float32)[np.newaxis]  # (1, d_feature)
    image_ids = (i for split in data.splits.values() for i in split.image_ids)
    store = ArrayFeatures(dict.fromkeys(image_ids, mean))
    return replace(
        data,
        name=f"{data.name}, mean features",
        fingerprint=sha256(f"{data.fingerprint} {store.fingerprint}".encode()),
        splits={name: replace(split, store=store) for name, split in data.splits.items()},
        backbone={},
    )
