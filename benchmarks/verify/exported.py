"""An exported captioner as a candidate: its graphs compared with the oracle on their weights.

Features and tokens are random; the weights, sizes and mixers are those of the folder. The tolerance
is that of float32 for all weights: ONNX stores layer norm's epsilon as a 32-bit attribute.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import torch

from benchmarks.errors import InputError
from benchmarks.files import read_json, sha256_of_arrays
from benchmarks.scoring import captioners
from benchmarks.scoring.onnx_captioner import (
    CONFIG,
    DECODER,
    ENCODER,
    OnnxCaptioner,
)
from benchmarks.verify import properties
from benchmarks.verify.cases import Case
from benchmarks.verify.draw import Draw
from benchmarks.verify.operators import Operator
from benchmarks.verify.operators.operator import LOW, Property
from benchmarks.verify.operators.transformer import captioner
from reference.primitives import Array, Integers
from torch_impl.models import build, configuration

CANDIDATE = f"{__name__}:read"
ABOUT = (
    "Log-probabilities of the word after each of tokens: (T,), given features: (L, d_feature), by "
    "the exported captioner in the folder."
)


class Exported(Operator):
    """An operator in float32 only: the graphs do not compute in float64."""

    def _properties(self) -> Iterator[Property]:
        yield Property("float32", properties.equals_oracle, LOW, {"dtype": "float32"})


def read(features: Array, tokens: Integers, folder: str) -> Array:
    """The graphs' log-probabilities (T, V), decoding one token at each step.

    Two hypotheses, the tokens and their reverse, swap slots at every step, to test the cache.
    """
    model = _model(folder)
    state = model.begin(model.encode(features[None]), 2)
    both, places = np.stack([tokens, tokens[::-1]]), np.array([[0, 1]])
    log_probs = []
    for t in range(len(tokens)):
        first = t % 2
        step = both[:, t] if first == 0 else both[::-1, t]
        log_p, state = model.step(step[None], places, state)
        log_probs.append(log_p[0, first])
        places = np.array([[1, 0]])
    return np.stack(log_probs)


def oracle(features: Array, tokens: Integers, folder: str) -> Array:
    """The oracle's log-probabilities with the graphs' weights, in the dtype of the features."""
    c = _model(folder).configuration
    weights = {name: value.astype(features.dtype) for name, value in _weights(folder).items()}
    reductions = c.encoder_reduction, c.decoder_reduction
    return captioner(features, tokens, weights, c.encoder, c.decoder, c.num_heads, *reductions)


def operator(folder: Path) -> Operator:
    """The operator that an exported captioner must conform to.

    Raises:
        InputError: the folder is damaged, its graphs do not have the exported weights, or a package
            to read it is missing.
    """
    model, weights = _model(str(folder)), _weights(str(folder))
    config = read_json(folder / CONFIG, "the configuration of an exported captioner")
    try:
        with torch.device("meta"):
            names = list(build(configuration(config["model"])).state_dict())
    except (TypeError, ValueError, KeyError) as error:
        raise InputError(
            f"{folder / CONFIG}: not the configuration of a captioner: {error}"
        ) from error
    found = {name: weights[name] for name in names if name in weights}
    if sha256_of_arrays(found) != config.get("weights"):
        raise InputError(f"{folder}: its graphs have other weights than those that were exported")

    def case(draw: Draw) -> Case:
        """(features, tokens, folder)."""
        L, T = draw.size("L", 6, large=(33, 144)), draw.size("T", model.max_length)
        tokens = draw.random.integers(0, model.configuration.vocabulary_size, T)
        return draw.inputs(L, model.d_feature), tokens, str(folder)

    arguments = ("features", "tokens", "folder")
    return Exported("exported_captioner", arguments, "(T, V)", ABOUT, oracle, case)


@cache
def _model(folder: str) -> OnnxCaptioner:
    model, _ = captioners.load_exported(Path(folder), edited=True)
    return model


@cache
def _weights(folder: str) -> dict[str, Array]:
    """The weights in the graphs, by the names of the captioner's ``state_dict``."""
    try:
        import onnx
    except ImportError as error:
        raise InputError(f"{error}, {captioners.INSTALL}") from error
    prefix = "model."
    return {
        value.name.removeprefix(prefix): onnx.numpy_helper.to_array(value)
        for name in (ENCODER, DECODER)
        for value in onnx.load(str(Path(folder) / name)).graph.initializer
        if value.name.startswith(prefix)
    }
