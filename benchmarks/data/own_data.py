"""``captionbench dataset``: pictures and a file of captions become a data set to train on."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks.data import caption_files, karpathy
from benchmarks.data.caption_files import Entry
from benchmarks.data.extract_features import in_parallel
from benchmarks.data.photographs import Photographs
from benchmarks.data.vocabulary import TOKENISERS, Vocabulary
from benchmarks.errors import InputError
from benchmarks.files import sha256, write_atomically

SPLITS = ("train", "val", "test")
SHOWN = 3


def make(
    photographs: Photographs,
    entries: Sequence[Entry],
    *,
    name: str,
    shares: Sequence[int] = (80, 10, 10),
    seed: int = 0,
    min_count: int = karpathy.MIN_COUNT,
    tokeniser: str = "words",
    skip_bad: bool = False,
) -> tuple[dict[str, Any], list[str]]:
    """The data set in Karpathy's layout, with its tokens and rarity, and what there is to say.

    Args:
        photographs: the pictures, by name.
        entries: their captions; those with a split are in that one.
        name: of the data set.
        shares: per cent of the images in "train", "val" and "test", where entries name no split.
        seed: of who is where; another image changes no other's place by more than the shares do.
        min_count: rarer words are unknown.
        tokeniser: one of `TOKENISERS`.
        skip_bad: leave out captions of missing or damaged pictures, and those without a word.

    Raises:
        InputError: something is bad and not to be skipped, splits that contradict each other, or
            nothing is left to train on.
    """
    said: list[str] = []
    split_text, _ = TOKENISERS[tokeniser]

    def bad(what: str, found: Sequence[str]) -> None:
        if found:
            message = f"{len(found)} {what}: {_some(found)}"
            if not skip_bad:
                raise InputError(f"{message}; --skip-bad goes on without")
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

    places = _places(kept, shares, seed)
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
    return layout, said


def _damaged(photographs: Photographs, names: Sequence[str]) -> dict[str, str]:
    """Why pictures cannot be read, of those that cannot: each is read whole."""

    def reason(name: str) -> str | None:
        try:
            photographs.open(name)
        except InputError as error:
            return str(error)
        return None

    with tqdm(in_parallel(reason, names), total=len(names), unit="picture", disable=None) as bar:
        return {name: why for name, why in zip(names, bar, strict=True) if why}


def _places(entries: Sequence[Entry], shares: Sequence[int], seed: int) -> dict[str, str]:
    """Each image's split: the one that its entries name, or by shares where none name any."""
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
        # by a hash: the same on every machine, whatever the order of the file
        order = sorted(images, key=lambda image: sha256(f"{seed} {image}".encode()))
        _, val, test = (max(1, len(order) * share // 100) if share else 0 for share in shares)
        names = ["val"] * val + ["test"] * test
        names += ["train"] * (len(order) - len(names))
        places = dict(zip(order, names, strict=False))
    if "train" not in places.values():
        raise InputError("no image is in the split 'train', expected at least one")
    return places


def summary(layout: Mapping[str, Any]) -> str:
    """A line on the images of each split and on the vocabulary."""
    images, min_count, tokeniser = (layout[k] for k in ("images", "min_count", "tokeniser"))
    sizes = Counter(image["split"] for image in images)
    counts = ", ".join(f"{sizes[name]} {name}" for name in SPLITS if sizes[name])
    train = (image["sentences"] for image in images if image["split"] == "train")
    texts = [sentence["raw"] for sentences in train for sentence in sentences]
    vocabulary = Vocabulary.from_captions(texts, min_count, tokeniser)
    return (
        f"{counts} images; {len(vocabulary.words)} {tokeniser} stand {min_count} times or more in "
        f"train, {len(vocabulary.unknown(texts))} rarer ones are unknown"
    )


def _some(names: Sequence[str]) -> str:
    """The first few of ``names``."""
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")


def _shares(text: str) -> tuple[int, ...]:
    try:
        shares = tuple(map(int, text.split(",")))
    except ValueError:
        shares = ()
    if len(shares) != len(SPLITS) or min(shares) < 0 or sum(shares) != 100:
        message = f"{text!r}, expected per cent of train, val and test, as 80,10,10"
        raise argparse.ArgumentTypeError(message)
    return shares


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "--images",
        type=Path,
        nargs="+",
        required=True,
        metavar="PLACE",
        help="folders or zip files of pictures",
    )
    parser.add_argument(
        "--captions",
        type=Path,
        required=True,
        metavar="FILE",
        help="CSV with the columns image, caption and perhaps split; or JSON: a list of such "
        "objects, {image: [captions]}, or COCO's caption format",
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="where it is written"
    )
    parser.add_argument("--name", help="of the data set (default: that of the folder)")
    parser.add_argument(
        "--split",
        type=_shares,
        metavar="TRAIN,VAL,TEST",
        help="per cent, where the file has no splits (default: 80,10,10)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the splits (default: 0)")
    parser.add_argument(
        "--min-count",
        type=int,
        default=karpathy.MIN_COUNT,
        metavar="N",
        help=f"rarer words are unknown (default: {karpathy.MIN_COUNT}, as the papers)",
    )
    parser.add_argument(
        "--tokens",
        choices=TOKENISERS,
        default="words",
        help="what captions are made of; characters for scripts without spaces (default: words)",
    )
    parser.add_argument(
        "--skip-bad",
        action="store_true",
        help="leave out missing and damaged pictures and captions without a word",
    )


def run(arguments: argparse.Namespace) -> int:
    """Write ``dataset_NAME.json``, and say what is in it and what to do next.

    Raises:
        InputError: bad input, by name; nothing is written then.
    """
    if arguments.min_count < 1:
        raise InputError(f"--min-count is {arguments.min_count}, expected at least 1")
    if arguments.out.suffix == ".json":
        raise InputError(f"--out {arguments.out}: expected a folder, for dataset_NAME.json")
    entries = caption_files.read(arguments.captions)
    if arguments.split and any(entry.split for entry in entries):
        raise InputError(f"--split: {arguments.captions} has splits of its own")
    name = arguments.name or arguments.out.resolve().name
    layout, said = make(
        Photographs(arguments.images),
        entries,
        name=name,
        shares=arguments.split or (80, 10, 10),
        seed=arguments.seed,
        min_count=arguments.min_count,
        tokeniser=arguments.tokens,
        skip_bad=arguments.skip_bad,
    )
    path = arguments.out / f"dataset_{name}.json"
    with write_atomically(path) as file:
        json.dump(layout, file, ensure_ascii=False)
    for line in said:
        print(f"captionbench: {line}", file=sys.stderr)
    print(f"{path}: {summary(layout)}")
    places = " ".join(map(str, arguments.images))
    print(f"next: captionbench features --karpathy {path} --images {places} --out FEATURES")
    return 0
