"""Captioners from the command line: a checkpoint, an ensemble of several, or an exported model.

`search` decodes each with its own beam search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from benchmarks.data import middle_words
from benchmarks.data.vocabulary import Vocabulary
from benchmarks.errors import InputError
from benchmarks.files import sha256_of_arrays
from benchmarks.run_folder import RunFolder, load_captioner
from benchmarks.scoring.onnx_captioner import ENCODER, OnnxCaptioner
from torch_impl.decoding.ensemble import Ensemble
from torch_impl.decoding.middle_out import Halves, middle_out_beam_search
from torch_impl.decoding.rounded_weights import round_weights
from torch_impl.decoding.search import beam_search
from torch_impl.models import BaseCaptioner, MiddleOutCaptioner

Single = BaseCaptioner | OnnxCaptioner
AnyDecoder = Single | Ensemble
INSTALL = "expected the extra: pip install 'captionbench[export]'"


class Found(Protocol):
    """A caption found by beam search."""

    @property
    def tokens(self) -> list[int]:
        """Token ids from left to right; special tokens are ignored in decoding."""

    @property
    def log_probs(self) -> list[float]:
        """One for each generated token."""

    @property
    def score(self) -> float:
        """The score that captions are sorted by."""


@dataclass(frozen=True)
class FromTheMiddle:
    """A caption decoded from its middle word."""

    tokens: list[int]
    log_probs: list[float]
    score: float

    @classmethod
    def of(cls, halves: Halves, end_id: int) -> FromTheMiddle:
        return cls(halves.caption(end_id), halves.log_probs, halves.score)


def search(
    model: AnyDecoder,
    features: Tensor,
    lengths: Tensor | None = None,
    *,
    beam_size: int,
    max_length: int,
    num_return: int = 1,
    middle: int | None = None,
) -> Sequence[Sequence[Found]]:
    """The best captions of each image, by the model's own beam search.

    Args:
        model: is put into evaluation mode, on its device.
        features: (B, L, d_feature), or another input of the model.
        lengths: (B,) valid rows; None: all.
        beam_size: hypotheses for each image; 1 is greedy.
        max_length: of a caption in tokens, start included; for a middle-out model, of each half
            with the middle word.
        num_return: captions for each image, best first.
        middle: the id of the word that a middle-out model starts from; None: its classifier's.

    Raises:
        InputError: a size is out of range, the features do not fit the model, or a middle word for
            a left-to-right model.
    """
    from_the_middle = isinstance(model, MiddleOutCaptioner) and model.configuration.middle_out
    if middle is not None and not from_the_middle:
        raise InputError("a middle word for a model that begins on the left, expected none")
    sizes = {"beam_size": beam_size, "max_length": max_length, "num_return": num_return}
    try:
        if isinstance(model, OnnxCaptioner):
            mask = None
            if lengths is not None:
                mask = (torch.arange(features.shape[1]) < lengths[:, None]).numpy()
            return model.beam_search(features.numpy(), mask, **sizes)
        device = next(model.eval().parameters()).device
        features, lengths = features.to(device), None if lengths is None else lengths.to(device)
        if isinstance(model, MiddleOutCaptioner) and from_the_middle:
            found = middle_out_beam_search(model, features, lengths, middle=middle, **sizes)
            return [[FromTheMiddle.of(h, model.end_id) for h in image] for image in found]
        return beam_search(model, features, lengths, **sizes)
    except ValueError as error:
        raise InputError(str(error)) from error


def middle_word(vocabulary: object, word: str | None) -> int | None:
    """The token id of a user's middle word, if one is given.

    Raises:
        InputError: the word is not in the vocabulary, or the checkpoint is a released one.
    """
    if word is None:
        return None
    if not isinstance(vocabulary, Vocabulary):
        raise InputError("a middle word for a released checkpoint, expected none")
    # normalised as captions are, for example to lower case
    return middle_words.word_id(vocabulary, " ".join(vocabulary.tokenise(word)))


def is_exported(place: Path) -> bool:
    """Whether ``place`` is a folder that ``captionbench export`` wrote."""
    return (place / ENCODER).is_file()


def load_exported(folder: Path, *, edited: bool = False) -> tuple[OnnxCaptioner, Vocabulary]:
    """The captioner and the vocabulary of an exported folder; ``edited`` skips the hash check.

    Raises:
        InputError: a file is missing or damaged, or ONNX Runtime is not installed.
    """
    vocabulary = RunFolder(folder).read_vocabulary()
    try:
        return OnnxCaptioner(folder, edited=edited), vocabulary
    except ImportError as error:
        raise InputError(f"{folder}: {error}, {INSTALL}") from error
    except FileNotFoundError as error:
        raise InputError(f"{error.filename}: no such file, expected an exported model") from None
    except (OSError, ValueError) as error:
        raise InputError(str(error)) from error


def load_all(checkpoints: Sequence[Path]) -> tuple[list[Single], Vocabulary]:
    """The models of runs, checkpoints or exported folders, and their common vocabulary.

    Raises:
        InputError: one cannot be loaded, or has another vocabulary than the first.
    """
    models: list[Single] = []
    words: list[Vocabulary] = []
    for place in checkpoints:
        model, vocabulary = (load_exported if is_exported(place) else load_captioner)(place)
        models.append(model)
        words.append(vocabulary)
        if vocabulary.fingerprint != words[0].fingerprint:
            raise InputError(
                f"{place}: knows other words than {checkpoints[0]}, expected the same of all"
            )
    return models, words[0]


def together(models: Sequence[Single]) -> AnyDecoder:
    """The single model, or the ensemble of several.

    Raises:
        InputError: they cannot be an ensemble, for example exported ones.
    """
    if len(models) == 1:
        return models[0]
    members = [model for model in models if not isinstance(model, OnnxCaptioner)]
    if len(members) < len(models):
        raise InputError("--checkpoint: an exported model is no member of an ensemble")
    try:
        return Ensemble(members)
    except ValueError as error:
        raise InputError(f"--checkpoint: {error}") from error


def load(checkpoints: Sequence[Path]) -> tuple[AnyDecoder, Vocabulary]:
    """Load one checkpoint, or several as an ensemble.

    Raises:
        InputError: as `load_all` and `together`.
    """
    models, vocabulary = load_all(checkpoints)
    return together(models), vocabulary


def d_feature(model: AnyDecoder) -> int:
    """The width of the features that ``model`` takes."""
    if isinstance(model, Ensemble):
        return model.d_feature
    width: int = model.configuration.d_feature
    return width


def weights_sha256(model: BaseCaptioner | Ensemble) -> str:
    """SHA-256 of the weights with their names, in order."""
    tensors = model.state_dict().items()
    return sha256_of_arrays({name: tensor.detach().cpu().numpy() for name, tensor in tensors})


def rounded(model: AnyDecoder, dtype: str) -> AnyDecoder:
    """Round the weights of the model's decoder in place; to float32, leave it as it is.

    Raises:
        InputError: as `rounded_weights.round_weights`, or an exported model.
    """
    if dtype == "float32":
        return model
    if isinstance(model, OnnxCaptioner):
        raise InputError(f"--weights {dtype}: an exported model has the weights of its file")
    try:
        round_weights(model, dtype)
    except ValueError as error:
        raise InputError(f"--weights {dtype}: {error}") from error
    return model


def to(model: AnyDecoder, device: str) -> AnyDecoder:
    """Move ``model`` to a device.

    Raises:
        InputError: an exported model, which runs on the CPU only.
    """
    if isinstance(model, OnnxCaptioner):
        if device != "cpu":
            raise InputError(f"--device {device}: an exported model runs on cpu")
        return model
    return model.to(device)
