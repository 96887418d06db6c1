"""``captionbench dataset``: make a data set of pictures and a file of captions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks.data import karpathy
from benchmarks.data.caption_files import Entry
from benchmarks.data.extract_features import in_parallel
from benchmarks.data.photographs import Photographs
from benchmarks.data.vocabulary import TOKENISERS, Vocabulary
from benchmarks.errors import InputError
from benchmarks.files import sha256

SPLITS = ("train", "val", "test")
SHARES = (80, 10, 10)
MOST_BYTES = 255
"""Of a file's name."""
SHOWN = 3


def make(
    photographs: Photographs,
    entries: Sequence[Entry],
    *,
    name: str,
    shares: Sequence[int] | None = None,
    seed: int = 0,
    min_count: int = karpathy.MIN_COUNT,
    tokeniser: str = "words",
    skip_bad: bool = False,
) -> tuple[dict[str, Any], list[str]]:
    """The data set in Karpathy's layout, with tokeniser and minimum count, and messages to print.

    Args:
        entries: the captions; their splits, if any, are used.
        shares: per cent of the images in "train", "val" and "test" (default: `SHARES`); not
            allowed if entries name splits.
        seed: of the random split; images are ordered by hash, so that adding one moves few others.
        tokeniser: one of `TOKENISERS`.
        skip_bad: leave out captions of missing or damaged pictures, and those without a word.

    Raises:
        InputError: bad entries without ``skip_bad``; splits contradict each other; or no image or
            no word is left to train on.
    """
    if min_count < 1:
        raise InputError(f"--min-count is {min_count}, expected at least 1")
    if shares and any(entry.split for entry in entries):
        raise InputError("--split-percent: the captions have splits of their own")
    said: list[str] = []
    split_text, _ = TOKENISERS[tokeniser]

    def bad(what: str, found: Sequence[str]) -> None:
        if found:
            message = f"{len(found)} {what}: {_some(found)}"
            if not skip_bad:
                raise InputError(f"{message}; --skip-bad leaves them out")
            said.append(f"left out {message}")

    missing = dict.fromkeys(e.image for e in entries if e.image not in photographs)
    bad("images that are not among the pictures", list(missing))
    present = [e for e in entries if e.image not in missing]
    bad("captions without a word", [e.place for e in present if not split_text(e.caption)])
    worded = [e for e in present if split_text(e.caption)]
    damaged = _damaged(photographs, list(dict.fromkeys(e.image for e in worded)))
    bad("pictures that cannot be read", list(damaged.values()))
    kept = [e for e in worded if e.image not in damaged]

    captions: dict[str, dict[str, None]] = {}
    for entry in kept:
        captions.setdefault(entry.image, {})[entry.caption] = None
    if not captions:
        raise InputError("no image with a caption is left")
    if repeated := len(kept) - sum(map(len, captions.values())):
        said.append(f"{repeated} captions stand twice for one image, once is enough")
    if without := [image for image in photographs if image not in captions]:
        said.append(f"{len(without)} pictures have no caption and are left out: {_some(without)}")

    places = _places(kept, shares or SHARES, seed)
    images = [
        {
            "imgid": i,
            "split": places[image],
            "filename": image,
            "sentences": [{"raw": caption} for caption in captions[image]],
        }
        for i, image in enumerate(captions)
    ]
    layout = {"dataset": name, "tokeniser": tokeniser, "min_count": min_count, "images": images}
    if not _vocabulary(layout).words:
        raise InputError(
            f"no token stands {min_count} times in train, expected a lower --min-count"
        )
    return layout, said


def path_in(folder: Path, name: str) -> Path:
    """The path of a data set's file in a folder.

    Raises:
        InputError: the name is not a valid file name, or the folder ends with ".json".
    """
    if not name.isprintable() or not name or Path(name).name != name or "\\" in name:
        raise InputError(f"--name {name!r}: expected a name that a file can have, without folders")
    if len(f"dataset_{name}.json".encode()) > MOST_BYTES:
        raise InputError(
            f"--name: {len(name)} characters, expected {MOST_BYTES - 13} bytes at most"
        )
    if folder.suffix == ".json":
        raise InputError(f"--out {folder}: expected a folder, for dataset_NAME.json")
    return folder / f"dataset_{name}.json"


def _damaged(photographs: Photographs, names: Sequence[str]) -> dict[str, str]:
    """The pictures that cannot be read, and why; each is fully decoded."""

    def reason(name: str) -> str | None:
        try:
            photographs.open(name)
        except InputError as error:
            return str(error)
        return None

    with tqdm(in_parallel(reason, names), total=len(names), unit="picture", disable=None) as bar:
        return {name: why for name, why in zip(names, bar, strict=True) if why}


def _places(entries: Sequence[Entry], shares: Sequence[int], seed: int) -> dict[str, str]:
    """Each image's split: the one its entries name, or a random one by ``shares``."""
    images = dict.fromkeys(entry.image for entry in entries)
    if any(entry.split for entry in entries):
        places: dict[str, str] = {}
        for entry in entries:
            if entry.split not in SPLITS:
                named = repr(entry.split) if entry.split else "none, though others have one"
                expected = ", ".join(SPLITS)
                raise InputError(f"{entry.place}: the split is {named}, expected one of {expected}")
            if places.setdefault(entry.image, entry.split) != entry.split:
                was = places[entry.image]
                raise InputError(f"{entry.place}: {entry.image} is in {was} and {entry.split}")
    else:
        # by a hash: independent of the machine and of the file's order
        order = sorted(images, key=lambda image: sha256(f"{seed} {image}".encode()))
        _, val, test = (max(1, len(order) * share // 100) if share else 0 for share in shares)
        names = ["val"] * val + ["test"] * test
        names += ["train"] * (len(order) - len(names))
        places = dict(zip(order, names, strict=False))
    if "train" not in places.values():
        raise InputError("no image is in the split 'train', expected at least one")
    return places


def summary(layout: Mapping[str, Any]) -> str:
    """One line: the number of images in each split, and the vocabulary's size."""
    sizes = Counter(image["split"] for image in layout["images"])
    counts = ", ".join(f"{sizes[name]} {name}" for name in SPLITS if sizes[name])
    vocabulary = _vocabulary(layout)
    return (
        f"{counts} images; {len(vocabulary.words)} {vocabulary.tokeniser} stand "
        f"{vocabulary.min_count} times or more in train, "
        f"{len(vocabulary.unknown(_train_texts(layout)))} rarer ones are unknown"
    )


def _train_texts(layout: Mapping[str, Any]) -> list[str]:
    train = (image["sentences"] for image in layout["images"] if image["split"] == "train")
    return [sentence["raw"] for sentences in train for sentence in sentences]


def _vocabulary(layout: Mapping[str, Any]) -> Vocabulary:
    texts = _train_texts(layout)
    return Vocabulary.from_captions(texts, layout["min_count"], layout["tokeniser"])


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
