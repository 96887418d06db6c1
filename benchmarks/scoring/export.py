"""``captionbench export``: a trained captioner as a folder that needs no PyTorch to caption."""

from __future__ import annotations

import argparse
import inspect
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.data.vocabulary import Vocabulary
from benchmarks.errors import InputError
from benchmarks.files import read_json, write_atomically
from benchmarks.run_folder import RunFolder, load_captioner
from benchmarks.scoring import onnx_captioner
from benchmarks.scoring.captioners import INSTALL, weights_sha256
from benchmarks.scoring.onnx_captioner import (
    CONFIG,
    DECODER,
    ENCODER,
    VOCABULARY,
)
from torch_impl.checkpoints.export import to_onnx
from torch_impl.models import AnyCaptioner

FORMATS = ("onnx",)
DRIVER = "captioner.py"


def write(
    out: Path, model: AnyCaptioner, vocabulary: Vocabulary, config: dict[str, Any] | None = None
) -> None:
    """Write a captioner's folder: its two graphs, its words, its configuration and a driver.

    Args:
        out: the folder.
        model: the captioner.
        vocabulary: its words.
        config: of the run that trained it.

    Raises:
        InputError: a family that cannot be exported, a package that is missing, a folder that
            cannot be written.
    """
    try:
        graphs = to_onnx(model)
    except ValueError as error:
        raise InputError(str(error)) from error
    except ImportError as error:
        raise InputError(f"{error}, {INSTALL}") from error
    described = {
        **(config or {}),
        "model": model.configuration.to_dict(),
        "weights": weights_sha256(model),
    }
    texts = {
        VOCABULARY: json.dumps(asdict(vocabulary), indent=1),
        CONFIG: json.dumps(described, indent=1),
        DRIVER: inspect.getsource(onnx_captioner),
    }
    # the encoder, by which a folder is known as exported, goes first and comes last
    (out / ENCODER).unlink(missing_ok=True)
    for name, text in texts.items():
        with write_atomically(out / name) as file:
            file.write(text)
    for name, data in ((DECODER, graphs.decoder), (ENCODER, graphs.encoder)):
        with write_atomically(out / name, "wb") as file:
            file.write(data)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "--checkpoint",
        type=Path,
        action="append",
        required=True,
        help="a run's folder (its best), or one checkpoint; no ensemble",
    )
    parser.add_argument("--format", choices=FORMATS, default="onnx")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="a new folder, or an exported one"
    )


def run(arguments: argparse.Namespace) -> int:
    """Export a run.

    Raises:
        InputError: bad input, by name.
    """
    if len(arguments.checkpoint) > 1:
        raise InputError("--checkpoint: an ensemble is not exported, expected one")
    (place,), out = arguments.checkpoint, arguments.out
    if out.exists() and not out.is_dir():
        raise InputError(f"{out}: a file, expected a new folder")
    own = {ENCODER, DECODER, VOCABULARY, CONFIG, DRIVER}
    if out.is_dir() and not {path.name for path in out.iterdir()} <= own:
        raise InputError(f"{out}: holds other files, expected a new folder")
    model, vocabulary = load_captioner(place)
    folder = RunFolder(place if place.is_dir() else place.parent)
    config = read_json(folder.config, "the configuration of a run")
    write(out, model, vocabulary, config if isinstance(config, dict) else None)
    size = sum((out / name).stat().st_size for name in (ENCODER, DECODER)) / 2**20
    print(f"{out}: {ENCODER} and {DECODER} ({size:.1f} MiB); python {out / DRIVER} FEATURES.npy")
    return 0
