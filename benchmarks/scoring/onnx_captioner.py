"""Caption image features with an exported model, by NumPy and ONNX Runtime.

``captionbench export`` writes a copy of this file to its folder, so it imports nothing else of the
project. ``python captioner.py FEATURES.npy`` there prints captions for features of shape
(L, d_feature) or (B, L, d_feature).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
State = dict[str, Array]
"""The decoder's inputs by name, apart from tokens and hypotheses: memory, mask and KV cache."""

ENCODER, DECODER = "encoder.onnx", "decoder.onnx"
CONFIG, VOCABULARY = "config.json", "vocabulary.json"
HASHES = "sha256"
"""The configuration's field with the hashes of all files, and of its own other fields."""
PAST, PRESENT = "past.", "present."
"""Prefixes of the decoder's inputs and outputs that are its cache."""
_SPOKEN = {"words": " ", "characters": ""}
_TYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(int64)": np.int64}


@dataclass(frozen=True)
class Hypothesis:
    """A generated caption."""

    tokens: list[int]
    """Start token included, and the end token unless cut off by ``max_length``."""
    log_probs: list[float]
    """One for each token after the start token."""

    @property
    def score(self) -> float:
        """The sum of the log-probabilities divided by the number of tokens, start included."""
        return sum(self.log_probs) / len(self.tokens)


class OnnxCaptioner:
    """The captioner in a folder that ``captionbench export`` wrote.

    Args:
        folder: with the encoder, the decoder, the configuration and the vocabulary.
        threads: of ONNX Runtime; None: all cores of this process.
        edited: accept files that were changed after the export.

    Raises:
        ImportError: ONNX Runtime is not installed.
        OSError: a file is missing.
        ValueError: a file is damaged, or edited without ``edited``.
    """

    def __init__(self, folder: Path, threads: int | None = None, *, edited: bool = False) -> None:
        files = {name: (folder / name).read_bytes() for name in (VOCABULARY, ENCODER, DECODER)}
        config, vocabulary = (_json(folder / name) for name in (CONFIG, VOCABULARY))
        kept = config.pop(HASHES, None)
        changed = [n for n, found in hashes(config, files).items() if (kept or {}).get(n) != found]
        if changed and not edited:
            raise ValueError(
                f"{folder / changed[0]}: damaged or edited: its SHA-256 is not the one in "
                f"{folder / CONFIG}"
            )
        try:
            c = self.configuration = SimpleNamespace(**config["model"])
            self.start_id, self.end_id, self.pad_id = c.start_id, c.end_id, c.pad_id
            self.max_length, self.d_feature = c.max_length, c.d_feature
            self._words, self._between = vocabulary["words"], _SPOKEN[vocabulary["tokeniser"]]
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{folder}: not an exported captioner: no {error}") from None
        self._encoder, self._decoder = (
            _session(folder / name, files[name], threads) for name in (ENCODER, DECODER)
        )
        self.dtype = _TYPES[self._encoder.get_inputs()[0].type]

    def encode(self, features: Array, mask: Array | None = None) -> State:
        """Encode features (B, L, d_feature) to the decoder's memory.

        Args:
            features: padded rows may have any content.
            mask: (B, L), True for valid rows; None: all.

        Raises:
            ValueError: the features are not (B, L, d_feature), or the mask does not fit them.
        """
        if features.ndim != 3 or features.shape[2] != self.d_feature:
            raise ValueError(f"features are {features.shape}, expected (B, L, {self.d_feature})")
        mask = np.ones(features.shape[:2], np.bool_) if mask is None else mask
        if mask.shape != features.shape[:2]:
            raise ValueError(f"the mask is {mask.shape}, expected {features.shape[:2]}")
        read = _run(self._encoder, {"features": features.astype(self.dtype), "mask": mask})
        return {"mask": mask, **read}

    def begin(self, memory: Mapping[str, Array], copies: int) -> State:
        """The state with an empty cache of ``copies`` hypotheses for each image."""
        sizes = {"batch": len(memory["mask"]), "hypotheses": copies, "steps": 0}
        nothing = {
            node.name: np.zeros([sizes.get(size, size) for size in node.shape], _TYPES[node.type])
            for node in self._decoder.get_inputs()
            if node.name.startswith(PAST)
        }
        return {**memory, **nothing}

    def step(self, tokens: Array, hypotheses: Array, state: State) -> tuple[Array, State]:
        """One decoding step: tokens (B, K) -> log p (B, K, V) of the next tokens, and the state.

        ``hypotheses`` (B, K) has, for each token, the index of the hypothesis that it extends.
        """
        results = _run(self._decoder, {"tokens": tokens, "hypotheses": hypotheses, **state})
        log_probs = results.pop("log_probs")
        read = {PAST + name.removeprefix(PRESENT): value for name, value in results.items()}
        return log_probs, {**state, **read}

    def beam_search(
        self,
        features: Array,
        mask: Array | None = None,
        *,
        beam_size: int = 3,
        max_length: int = 20,
        num_return: int = 1,
    ) -> list[list[Hypothesis]]:
        """The best captions of each image, best first.

        Hypotheses compete by their summed log-probability; finished ones keep their sum. Ties go to
        the earlier hypothesis, then to the lower token. The final order is by score.

        Args:
            features: (B, L, d_feature).
            mask: (B, L), True for valid rows; None: all.
            beam_size: hypotheses for each image; 1 is greedy.
            max_length: of a caption in tokens, start and end included.
            num_return: captions for each image.

        Raises:
            ValueError: a size is out of range, the features or the mask do not fit, or
                log-probabilities are NaN.
        """
        if beam_size < 1:
            raise ValueError(f"beam_size is {beam_size}, expected at least 1")
        if not 1 <= num_return <= beam_size:
            raise ValueError(f"num_return is {num_return}, expected 1 to beam_size ({beam_size})")
        if not 2 <= max_length <= self.max_length:
            raise ValueError(f"max_length is {max_length}, expected 2 to {self.max_length}")
        B, K = len(features), beam_size
        state = self.begin(self.encode(features, mask), K)
        beams = np.tile(np.arange(K), (B, 1))
        tokens = np.full((B, K, 1), self.start_id)
        log_probs = np.empty((B, K, 0))
        finished = np.zeros((B, K), np.bool_)
        # start with one hypothesis: slots with sum -inf are empty and lose to all others
        totals = np.where(np.arange(K) == 0, 0.0, -np.inf) + np.zeros((B, 1))
        for _ in range(max_length - 1):
            log_p, state = self.step(tokens[..., -1], beams, state)
            log_p = log_p.astype(np.float64)
            if np.isnan(log_p).any():
                raise ValueError("the model's log-probabilities are NaN")
            scores = totals[..., None] + log_p
            # a finished hypothesis continues with pad only, at no cost
            scores[finished] = -np.inf
            scores[finished, self.pad_id] = totals[finished]
            totals, choices = _largest(scores.reshape(B, -1), K)
            beams, token = np.divmod(choices, log_p.shape[-1])
            finished = np.take_along_axis(finished, beams, 1)
            chosen = np.take_along_axis(log_p.reshape(B, -1), choices, 1)
            log_probs = _append(log_probs, beams, np.where(finished, 0.0, chosen))
            tokens = _append(tokens, beams, token)
            finished |= token == self.end_id
            if (finished | (totals == -np.inf)).all():
                break
        return [
            self._best(*image, num_return) for image in zip(tokens, log_probs, totals, strict=True)
        ]

    def _best(
        self, tokens: Array, log_probs: Array, totals: Array, num_return: int
    ) -> list[Hypothesis]:
        """The hypotheses of an image without padding, best first."""
        found = []
        for words, values in zip(
            tokens[totals > -np.inf], log_probs[totals > -np.inf], strict=True
        ):
            ends = np.flatnonzero(words[1:] == self.end_id)
            size = ends[0] + 2 if len(ends) else len(words)
            found.append(Hypothesis(words[:size].tolist(), values[: size - 1].tolist()))
        return sorted(found, key=lambda hypothesis: -hypothesis.score)[:num_return]

    def words(self, tokens: Sequence[int]) -> str:
        """The caption of token ids up to the first end, without start and pad."""
        spoken = []
        for token in tokens:
            if token == self.end_id:
                break
            if token not in (self.start_id, self.pad_id):
                # ids 0 to 3 are special tokens; 3 is the unknown word
                spoken.append(self._words[token - 4] if token > 3 else "unk")
        return str(self._between.join(spoken))


def hashes(config: Mapping[str, Any], files: Mapping[str, bytes]) -> dict[str, str]:
    """SHA-256 of the files and of the configuration, by name."""
    described = json.dumps(config, sort_keys=True).encode()
    return {n: hashlib.sha256(x).hexdigest() for n, x in {**files, CONFIG: described}.items()}


def _json(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text("utf-8")))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: not a JSON object ({error}), damaged?") from None


def _session(path: Path, graph: bytes, threads: int | None) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    usable = getattr(os, "sched_getaffinity", None)
    options.intra_op_num_threads = threads or (len(usable(0)) if usable else os.cpu_count() or 1)
    try:
        return onnxruntime.InferenceSession(
            graph,
            options,
            ["CPUExecutionProvider"],
            disabled_optimizers=["MatMulScaleFusion"],  # it rounds scales to float32
        )
    except Exception as error:  # ONNX Runtime's exceptions have no common base class
        raise ValueError(f"{path}: ONNX Runtime cannot load it: {error}") from error


def _run(session: Any, inputs: Mapping[str, Array]) -> State:
    """The outputs by name; inputs that the graph does not have are ignored."""
    kept = {node.name: inputs[node.name] for node in session.get_inputs()}
    names = [node.name for node in session.get_outputs()]
    return dict(zip(names, session.run(names, kept), strict=True))


def _largest(scores: Array, k: int) -> tuple[Array, Array]:
    """The ``k`` largest values of each row and their indices; ties by index."""
    values, places = [], []
    for _ in range(k):
        place = scores.argmax(1)[:, None]  # the first of equals
        values.append(np.take_along_axis(scores, place, 1))
        places.append(place)
        np.put_along_axis(scores, place, -np.inf, 1)
    return np.concatenate(values, 1), np.concatenate(places, 1)


def _append(x: Array, beams: Array, column: Array) -> Array:
    """Select rows ``beams`` (B, K) of x (B, K, T), and append ``column`` (B, K)."""
    return np.concatenate([np.take_along_axis(x, beams[..., None], 1), column[..., None]], -1)


def main(argv: Sequence[str] | None = None) -> int:
    """Print a caption for each image of a file of features; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("features", type=Path, help="a .npy file, (L, d) or (B, L, d)")
    parser.add_argument("--beam-size", type=int, default=3, help="1 is greedy (default: 3)")
    parser.add_argument("--max-length", type=int, default=20, help="tokens (default: 20)")
    arguments = parser.parse_args(argv)
    try:
        features = np.load(arguments.features)
        model = OnnxCaptioner(Path(__file__).resolve().parent)
        found = model.beam_search(
            features if features.ndim == 3 else features[None],
            beam_size=arguments.beam_size,
            max_length=arguments.max_length,
        )
    except (ImportError, OSError, ValueError) as error:
        print(f"captioner: error: {error}", file=sys.stderr)
        return 2
    for (best,) in found:
        print(model.words(best.tokens))
    return 0


if __name__ == "__main__":
    sys.exit(main())
