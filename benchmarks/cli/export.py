"""``captionbench export``: a trained captioner as a folder that needs no PyTorch to caption."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from benchmarks.cli.options import add_checkpoint, add_json
from benchmarks.errors import InputError
from benchmarks.files import all_or_nothing, locked
from benchmarks.run_folder import RunFolder, load_captioner
from benchmarks.scoring.export import DRIVER, FORMATS, write
from benchmarks.scoring.onnx_captioner import CONFIG, DECODER, ENCODER, VOCABULARY


def configure(parser: argparse.ArgumentParser) -> None:
    add_checkpoint(parser, "or one checkpoint; no ensemble")
    parser.add_argument("--format", choices=FORMATS, default="onnx")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="a new folder, or an exported one"
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Export a run.

    Raises:
        InputError: invalid options or files.
    """
    if len(arguments.checkpoint) > 1:
        raise InputError("--checkpoint: an ensemble is not exported, expected one")
    (place,), out = arguments.checkpoint, arguments.out
    own = {ENCODER, DECODER, VOCABULARY, CONFIG, DRIVER}
    if out.is_dir() and not {path.name for path in out.iterdir()} <= own:
        raise InputError(f"{out}: holds other files, expected a new folder")
    model, vocabulary = load_captioner(place)
    folder = RunFolder(place if place.is_dir() else place.parent)
    config = folder.read_config()
    if sys.stderr.isatty():
        print(f"{place}: exporting its encoder and decoder ...", file=sys.stderr)
    with locked(out, wait=False), all_or_nothing(out):
        write(out, model, vocabulary, config)
    files = {name: (out / name).stat().st_size for name in (ENCODER, DECODER)}
    if arguments.json:
        print(json.dumps({"folder": str(out), "bytes": files, "driver": str(out / DRIVER)}))
        return 0
    size = sum(files.values()) / 2**20
    print(f"{out}: {ENCODER} and {DECODER} ({size:.1f} MiB); python {out / DRIVER} FEATURES.npy")
    return 0
