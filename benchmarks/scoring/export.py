"""``captionbench export``: write a trained captioner to a folder that captions without PyTorch."""

from __future__ import annotations

import inspect
import json
import os
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.data.vocabulary import Vocabulary
from benchmarks.errors import InputError
from benchmarks.files import write_atomically
from benchmarks.scoring import onnx_captioner
from benchmarks.scoring.captioners import INSTALL, weights_sha256
from benchmarks.scoring.onnx_captioner import CONFIG, DECODER, ENCODER, HASHES, VOCABULARY
from torch_impl.checkpoints.export import to_onnx
from torch_impl.models import BaseCaptioner

FORMATS = ("onnx",)
DRIVER = "captioner.py"


def write(
    out: Path, model: BaseCaptioner, vocabulary: Vocabulary, config: dict[str, Any] | None = None
) -> None:
    """Write two ONNX graphs, the vocabulary, the configuration and a driver to the folder ``out``.

    Args:
        config: of the run that trained the model.

    Raises:
        InputError: the model's family cannot be exported, a package is missing, or the folder
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
    words = json.dumps(asdict(vocabulary), indent=1)
    files = {VOCABULARY: words.encode(), ENCODER: graphs.encoder, DECODER: graphs.decoder}
    described[HASHES] = onnx_captioner.hashes(described, files)
    files[CONFIG] = json.dumps(described, indent=1).encode()
    files[DRIVER] = inspect.getsource(onnx_captioner).encode()
    # all are on the disk before the first replaces an old one
    with ExitStack() as stack:
        for name, data in files.items():
            file = stack.enter_context(write_atomically(out / name, "wb"))
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
