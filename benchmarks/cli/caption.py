"""``captionbench caption``: captions of pictures, or of a data set's split in COCO's format."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

from tqdm import tqdm

from benchmarks.cli import data_options
from benchmarks.cli.options import add_beam_size, add_checkpoint, add_json, check_device
from benchmarks.errors import InputError
from benchmarks.files import write_atomically
from benchmarks.scoring import captioners
from benchmarks.scoring.caption import caption
from benchmarks.scoring.caption_pictures import as_text, caption_pictures, load, load_released
from torch_impl.decoding.rounded_weights import LINEAR
from torch_impl.models.vision import BACKBONES


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "pictures",
        type=Path,
        nargs="*",
        metavar="PICTURE",
        help="picture files, and folders of them; or name a data set below",
    )
    several = "may be repeated: several runs are an ensemble"
    add_checkpoint(parser, f"one checkpoint, or an exported folder; {several}")
    add_beam_size(parser)
    parser.add_argument("--batch-size", type=int, default=50, help="images at a time (default: 50)")
    parser.add_argument(
        "--max-length", type=int, default=20, help="tokens, the start included (default: 20)"
    )
    parser.add_argument(
        "--middle-word",
        metavar="WORD",
        help="what a middle-out model begins every caption with (default: its classifier's word)",
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--weights",
        choices=("float32", *LINEAR),
        default="float32",
        help="dtype of the decoder on a CPU: fewer bits are quicker for few images (default: "
        "float32)",
    )
    with_pictures = parser.add_argument_group("with pictures")
    with_pictures.add_argument(
        "--num-return", type=int, metavar="N", help="captions of each, best first (default: 1)"
    )
    with_pictures.add_argument(
        "--overlay", type=Path, metavar="DIR", help="draw where the model looked for each word"
    )
    with_pictures.add_argument(
        "--head",
        type=int,
        metavar="N",
        help="attention head of the overlay, from 0 (default: their mean)",
    )
    with_pictures.add_argument(
        "--skip-bad", action="store_true", help="leave out files that are no whole pictures"
    )
    with_pictures.add_argument(
        "--backbone", choices=BACKBONES, help="backbone of a checkpoint that does not name its own"
    )
    with_pictures.add_argument(
        "--words",
        type=Path,
        metavar="FILE",
        help="the checkpoint is an end to end one as the authors released it; these are its words, "
        "a JSON list by their ids",
    )
    with_pictures.add_argument(
        "--groups",
        type=int,
        nargs="+",
        metavar="N",
        help="its static expansion coefficients (default: v2's 32 64 128 256 512)",
    )
    data_options.configure(parser, required=False)
    with_split = parser.add_argument_group("with a data set")
    with_split.add_argument("--split", help="the images to caption (default: test)")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="write the captions as JSON: of pictures with scores, of a split in COCO's format",
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Caption pictures, or a split.

    Raises:
        InputError: invalid options or files. Files are written atomically.
    """
    of_split = ("scenes", "moving", "karpathy", "features", "mean_features", "split")
    of_pictures = (*("num_return", "overlay", "head", "skip_bad", "backbone"), *("words", "groups"))
    for name in of_split if arguments.pictures else of_pictures:
        value = getattr(arguments, name)
        # 0 is a value too
        if value is not None and value is not False:
            other = "a data set" if arguments.pictures else "pictures"
            raise InputError(f"--{name.replace('_', '-')} goes with {other}")
    for name, other in (("head", "overlay"), ("groups", "words")):
        if getattr(arguments, name) is not None and not getattr(arguments, other):
            raise InputError(f"--{name} goes with --{other}")
    if arguments.weights != "float32" and arguments.device != "cpu":
        raise InputError(f"--weights {arguments.weights} goes with --device cpu")
    check_device(arguments.device)
    return (_caption_pictures if arguments.pictures else _caption_split)(arguments)


def _caption_pictures(arguments: argparse.Namespace) -> int:
    places, backbone = arguments.checkpoint, arguments.backbone
    if arguments.words:
        seeing = load_released(places, arguments.words, arguments.groups, backbone)
    else:
        seeing = load(places, backbone)
    seeing = replace(seeing, captioner=captioners.rounded(seeing.captioner, arguments.weights))
    _middle_word(seeing.vocabulary, arguments.middle_word)
    results = []
    for result in caption_pictures(
        arguments.pictures,
        seeing,
        beam_size=arguments.beam_size,
        batch_size=arguments.batch_size,
        max_length=arguments.max_length,
        num_return=1 if arguments.num_return is None else arguments.num_return,
        middle_word=arguments.middle_word,
        device=arguments.device,
        skip_bad=arguments.skip_bad,
        overlay_folder=arguments.overlay,
        head=arguments.head,
    ):
        results.append(result)
        if not arguments.json:
            tqdm.write(as_text(result), file=sys.stdout)
    if arguments.json:
        print(json.dumps(results, indent=1))
    if arguments.out:
        with write_atomically(arguments.out) as file:
            json.dump(results, file, ensure_ascii=False, indent=1)
    return 0


def _middle_word(vocabulary: object, word: str | None) -> int | None:
    """The token id of the word; an error names the option, and the word as it was typed."""
    try:
        return captioners.middle_word(vocabulary, word)
    except InputError as error:
        raise InputError(f"--middle-word {word}: {error}") from None


def _caption_split(arguments: argparse.Namespace) -> int:
    if not (arguments.scenes or arguments.karpathy):
        raise InputError("nothing to caption, expected pictures, --scenes or --karpathy")
    if not (arguments.out or arguments.json):
        raise InputError("a data set needs --out FILE for its captions, or --json")
    model, vocabulary = captioners.load(arguments.checkpoint)
    model = captioners.rounded(model, arguments.weights)
    data = data_options.load(arguments)
    split = data.split(arguments.split or "test")
    captions = caption(
        captioners.to(model, arguments.device),
        vocabulary,
        split,
        arguments.beam_size,
        arguments.batch_size,
        max_length=arguments.max_length,
        middle=_middle_word(vocabulary, arguments.middle_word),
        progress=True,
    )
    results = [{"image_id": i, "caption": text} for i, text in captions.items()]
    if arguments.json:
        print(json.dumps(results))
    if arguments.out:
        with write_atomically(arguments.out) as file:
            json.dump(results, file)
        said = f"{arguments.out}: {len(captions)} captions, beam {arguments.beam_size}"
        print(said, file=sys.stderr)
    return 0
