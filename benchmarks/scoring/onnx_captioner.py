"""An exported captioner, run by NumPy and ONNX Runtime alone: this file needs no other of ours.

``captionbench export`` puts a copy into the folder it writes: ``python captioner.py FEATURES.npy``
there prints the captions of images whose features are (L, d_feature) or (B, L, d_feature).
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
"""What the decoder's next step is given, by the names of its inputs."""

ENCODER, DECODER = "encoder.onnx", "decoder.onnx"
CONFIG, VOCABULARY = "config.json", "vocabulary.json"
HASHES = "sha256"
"""In the configuration: of every file, the configuration's other fields included."""
PAST, PRESENT = "past.", "present."
"""What the names of the decoder's inputs and outputs that carry its state begin with."""
_SPOKEN = {"words": " ", "characters": ""}
_TYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(int64)": np.int64}


@dataclass(frozen=True)
class Hypothesis:
    """A caption as the model gave it."""

    tokens: list[int]
    """The start token included, the end token too unless ``max_length`` cut it off."""
    log_probs: list[float]
    """One for each token after the start."""

    @property
    def score(self) -> float:
        """The sum of the log-probabilities over the number of tokens, start included."""
        return sum(self.log_probs) / len(self.tokens)


class OnnxCaptioner:
    """The captioner in a folder that ``captionbench export`` wrote.

    Args:
        folder: with the encoder, the decoder's step, the configuration and the words.
        threads: of ONNX Runtime; as many as this process may use if None.
        edited: whether the files may be others than those that were exported.

    Raises:
        ImportError: ONNX Runtime is not installed.
        OSError: a file is missing.
        ValueError: a file is damaged, or edited and may not be.
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
        """What the decoder reads of images, features (B, L, d_feature).

        Args:
            features: what a padded row holds does not matter.
            mask: (B, L), True for valid rows; all if None.

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
        """The state of ``copies`` hypotheses for each image that have read nothing yet."""
        sizes = {"batch": len(memory["mask"]), "hypotheses": copies, "steps": 0}
        nothing = {
            node.name: np.zeros([sizes.get(size, size) for size in node.shape], _TYPES[node.type])
            for node in self._decoder.get_inputs()
            if node.name.startswith(PAST)
        }
        return {**memory, **nothing}

    def step(self, tokens: Array, hypotheses: Array, state: State) -> tuple[Array, State]:
        """The next tokens (B, K) to log p (B, K, V) of those after, and the state then.

        Each token goes on from the hypothesis of its image that ``hypotheses`` (B, K) names.
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

        Hypotheses compete by their summed log-probability, a finished one with its sum unchanged;
        ties go to the earlier hypothesis, then to the lower token. The final order is by score.

        Args:
            features: (B, L, d_feature).
            mask: (B, L), True for valid rows; all if None.
            beam_size: hypotheses kept for each image; 1 is greedy.
            max_length: of a caption in tokens, start and end included.
            num_return: captions of each image.

        Raises:
            ValueError: a size is out of range, the features or the mask do not fit, or the model's
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
        # one hypothesis to begin with: a place whose sum is -inf is empty, and loses to all others
        totals = np.where(np.arange(K) == 0, 0.0, -np.inf) + np.zeros((B, 1))
        for _ in range(max_length - 1):
            log_p, state = self.step(tokens[..., -1], beams, state)
            log_p = log_p.astype(np.float64)
            if np.isnan(log_p).any():
                raise ValueError("the model's log-probabilities are NaN")
            scores = totals[..., None] + log_p
            # a finished hypothesis has one continuation: itself, padded, at no cost
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
        """The hypotheses of an image, without their padding, best first."""
        found = []
        for words, values in zip(
            tokens[totals > -np.inf], log_probs[totals > -np.inf], strict=True
        ):
            ends = np.flatnonzero(words[1:] == self.end_id)
            size = ends[0] + 2 if len(ends) else len(words)
            found.append(Hypothesis(words[:size].tolist(), values[: size - 1].tolist()))
        return sorted(found, key=lambda hypothesis: -hypothesis.score)[:num_return]

    def words(self, tokens: Sequence[int]) -> str:
        """The caption that token ids are, up to the first end; start and pad are silent."""
        spoken = []
        for token in tokens:
            if token == self.end_id:
                break
            if token not in (self.start_id, self.pad_id):
                # the special tokens have the first ids, of which the unknown word's is the last
                spoken.append(self._words[token - 4] if token > 3 else "unk")
        return str(self._between.join(spoken))


def hashes(config: Mapping[str, Any], files: Mapping[str, bytes]) -> dict[str, str]:
    """SHA-256 of the files and of the configuration, by name, as `CONFIG` has them."""
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
            disabled_optimizers=["MatMulScaleFusion"],  # it rounds scales to 32 bits
        )
    except Exception as error:  # its own kinds, which have no common ancestor
        raise ValueError(f"{path}: ONNX Runtime cannot load it: {error}") from error


def _run(session: Any, inputs: Mapping[str, Array]) -> State:
    """The outputs by name; of the inputs those that the graph has kept."""
    kept = {node.name: inputs[node.name] for node in session.get_inputs()}
    names = [node.name for node in session.get_outputs()]
    return dict(zip(names, session.run(names, kept), strict=True))


def _largest(scores: Array, k: int) -> tuple[Array, Array]:
    """The ``k`` largest of each row, with their places; equal ones by place."""
    values, places = [], []
    for _ in range(k):
        place = scores.argmax(1)[:, None]  # the first of equals
        values.append(np.take_along_axis(scores, place, 1))
        places.append(place)
        np.put_along_axis(scores, place, -np.inf, 1)
    return np.concatenate(values, 1), np.concatenate(places, 1)


def _append(x: Array, beams: Array, column: Array) -> Array:
    """The rows ``beams`` (B, K) of x (B, K, T), and ``column`` (B, K) as their next."""
    return np.concatenate([np.take_along_axis(x, beams[..., None], 1), column[..., None]], -1)


def main(argv: Sequence[str] | None = None) -> int:
    """Print a caption for each image of a file of features; 2 if it cannot be done."""
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
