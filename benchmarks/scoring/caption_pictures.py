"""Caption picture files: features by a backbone, then beam search in batches."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from benchmarks.data import backbones, pictures
from benchmarks.data.backbones import Backbone
from benchmarks.data.batches import chunks
from benchmarks.data.extract_features import PER_THREAD, in_parallel
from benchmarks.data.pictures import Header
from benchmarks.errors import InputError
from benchmarks.files import write_atomically
from benchmarks.run_folder import RunFolder
from benchmarks.scoring import captioners, overlay, released
from benchmarks.scoring.captioners import AnyDecoder, Found, Single
from torch_impl.models import Captioner, EndToEnd
from torch_impl.models.vision import Swin

NAMED = 8
"""Number of bad pictures that an error names; it counts the others."""


class Words(Protocol):
    """A vocabulary that decodes captions."""

    def decode(self, ids: Iterable[int]) -> str:
        """The caption of token ids."""


@dataclass(frozen=True)
class Seeing:
    """A backbone, a captioner of its features, and the captioner's vocabulary."""

    backbone: Backbone
    captioner: AnyDecoder
    vocabulary: Words

    def to(self, device: str) -> Seeing:
        captioner = captioners.to(self.captioner, device)
        self.backbone.to(device)
        return replace(self, captioner=captioner)


def caption_pictures(
    places: Sequence[Path],
    seeing: Seeing,
    *,
    beam_size: int = 3,
    batch_size: int = 50,
    max_length: int = 20,
    num_return: int = 1,
    middle_word: str | None = None,
    device: str = "cpu",
    skip_bad: bool = False,
    overlay_folder: Path | None = None,
    head: int | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the captions of each picture: ``image``, and ``captions``, the best first.

    Args:
        places: picture files, and folders of them.
        max_length: in tokens, start included.
        middle_word: that a middle-out model starts from; None: its classifier's.
        skip_bad: skip files that are not complete pictures.
        overlay_folder: write overlays of each word's attention to this folder.
        head: of the overlays; None: the mean over heads.

    Raises:
        InputError: bad input; a bad picture only without ``skip_bad``.
    """
    if batch_size < 1:
        raise InputError(f"--batch-size is {batch_size}, expected at least 1")
    paths = _openable(pictures.find(places), skip_bad)
    overlays = _overlay_names(paths) if overlay_folder else {}
    attending = seeing.captioner if isinstance(seeing.captioner, Captioner) else None
    if overlay_folder and not attending:
        raise InputError("--overlay: expected one model with cross-attention")
    seeing = seeing.to(device)
    backbone, captioner, vocabulary = seeing.backbone, seeing.captioner, seeing.vocabulary
    middle = captioners.middle_word(vocabulary, middle_word)
    made = features_of(paths, backbone, device, skip_bad)
    done = 0
    with tqdm(total=len(paths), unit="picture", disable=None) as bar:
        while batch := list(islice(made, batch_size)):
            found = captioners.search(
                captioner,
                torch.stack([rows for _, rows in batch]),
                beam_size=beam_size,
                max_length=max_length,
                num_return=num_return,
                middle=middle,
            )
            for (path, rows), hypotheses in zip(batch, found, strict=True):
                if overlay_folder and attending:
                    png = _drawn(path, attending, vocabulary, rows, hypotheses[0].tokens, head)
                    with write_atomically(overlay_folder / overlays[path], "wb") as file:
                        file.write(png)
                yield _result(path, hypotheses, vocabulary)
            done += len(batch)
            bar.update(len(batch))
    if not done:
        raise InputError("no picture could be read")


def load(places: Sequence[Path], backbone: str | None = None) -> Seeing:
    """Load the backbone and the captioner of one or several runs.

    Args:
        places: runs' folders, checkpoints or exported folders; several are an ensemble.
        backbone: of runs whose configuration names none.

    Raises:
        InputError: as `backbone_of`; one cannot be loaded, or they cannot be an ensemble.
    """
    models, vocabulary = captioners.load_all(places)
    if len(models) > 1 and any(isinstance(model, EndToEnd) for model in models):
        raise InputError("--checkpoint: models with backbones of their own are no ensemble")
    # a backbone has one set of weights, with which every run is compared
    seeing = [
        backbone_of(model, place, backbone) for model, place in zip(models, places, strict=True)
    ]
    names = sorted({each.name for each, _ in seeing})
    if len(names) > 1:
        raise InputError(f"--checkpoint: trained on features of {' and '.join(names)}")
    captioner = captioners.together([model for _, model in seeing])
    return Seeing(seeing[0][0], captioner, vocabulary)


def load_released(
    places: Sequence[Path],
    words: Path,
    groups: Sequence[int] | None = None,
    backbone: str | None = None,
) -> Seeing:
    """Load a released end-to-end checkpoint, see `released.load`.

    Raises:
        InputError: as `released.load` and `backbone_of`, or several checkpoints.
    """
    if len(places) > 1:
        raise InputError("--words goes with one --checkpoint")
    model, vocabulary = released.load(places[0], words, groups or released.GROUPS)
    return Seeing(*backbone_of(model, places[0], backbone), vocabulary)


def backbone_of(
    model: Single, checkpoint: Path, chosen: str | None = None
) -> tuple[Backbone, Single]:
    """The backbone of a run's model, and the captioner of its features.

    An end-to-end model has its own backbone. Others use the one in the run's configuration, or the
    ``chosen`` one if it has none.

    Raises:
        InputError: no backbone is named or chosen, or another one is chosen; the backbone differs
            from the one that the run was trained with, for example in its weights.
    """
    if isinstance(model, EndToEnd):
        if chosen:
            raise InputError(f"{checkpoint}: has a backbone of its own, not {chosen}")
        return Swin(model.backbone), model.captioner
    folder = RunFolder(checkpoint if checkpoint.is_dir() else checkpoint.parent)
    then = folder.read_config().get("backbone", {})
    name = then.get("backbone", chosen)
    if name is None:
        raise InputError(
            f"{folder.config}: names no backbone that made the features, expected --backbone"
        )
    if chosen not in (None, name):
        raise InputError(f"{folder.config}: trained on features of {name}, not of {chosen}")
    if name == Swin.name:
        raise InputError(
            f"{folder.config}: trained on features of a Swin that is no part of it, expected a "
            "checkpoint trained end to end (step B or D of its recipe)"
        )
    backbone = backbones.load(name)
    now = backbone.signature
    for field, was in then.items():
        if now.get(field) != was:
            raise InputError(
                f"{folder.config}: trained on features with {field} {was}, not {now.get(field)}"
            )
    width = model.configuration.d_feature
    if backbone.d_feature != width:
        raise InputError(
            f"{checkpoint}: expects features {width} wide, {name} makes {backbone.d_feature}"
        )
    return backbone, model


def features_of(
    paths: Sequence[Path], backbone: Backbone, device: str = "cpu", skip_bad: bool = False
) -> Iterator[tuple[Path, Tensor]]:
    """The features (L, d_feature) of each picture, in order, prefetched.

    Raises:
        InputError: a picture is damaged; with ``skip_bad`` it is skipped with a line on stderr.
    """

    def extract(batch: Sequence[Path]) -> list[tuple[Path, Tensor | InputError]]:
        made: dict[Path, Tensor | InputError] = {}
        pixels = {}
        for path in batch:
            try:
                pixels[path] = pictures.squeeze(pictures.read(path), backbone.image_size)
            except InputError as error:
                if not skip_bad:
                    raise InputError(f"{error}; --skip-bad leaves them out") from error
                made[path] = error
        if pixels:
            images = torch.from_numpy(np.stack(list(pixels.values()))).to(device)
            made |= zip(pixels, backbone(images), strict=True)
        return [(path, made[path]) for path in batch]

    for extracted in in_parallel(extract, chunks(paths, PER_THREAD)):
        for path, features in extracted:
            if isinstance(features, InputError):
                _say(f"skipped: {features}")
            else:
                yield path, features


def as_text(result: dict[str, Any]) -> str:
    """A picture's captions as text: one line, or an indented line for each of several."""
    lines = [f"{c['caption']} ({c['score']:.3f})" for c in result["captions"]]
    if len(lines) == 1:
        return f"{result['image']}: {lines[0]}"
    return "\n    ".join([f"{result['image']}:", *lines])


def _result(path: Path, hypotheses: Iterable[Found], vocabulary: Words) -> dict[str, Any]:
    captions = [
        {
            "caption": vocabulary.decode(hypothesis.tokens),
            "score": hypothesis.score,
            "log_prob": sum(hypothesis.log_probs),
        }
        for hypothesis in hypotheses
    ]
    return {"image": str(path), "captions": captions}


def _drawn(
    path: Path,
    model: Captioner,
    vocabulary: Words,
    features: Tensor,
    tokens: Sequence[int],
    head: int | None,
) -> bytes:
    """A caption's overlay as PNG; the end token has no panel."""
    weights = overlay.looks(model, features, tokens, head)
    words = [vocabulary.decode([token]) for token in tokens[1:] if token != model.end_id]
    return overlay.draw(pictures.read(path), words, weights[: len(words)])


def _overlay_names(paths: Sequence[Path]) -> dict[Path, str]:
    """File names of the overlays: dog.png, or dog.jpg.png if several pictures are called dog.

    Raises:
        InputError: two would have the same name.
    """
    stems = Counter(path.stem for path in paths)
    names = {path: f"{path.stem if stems[path.stem] == 1 else path.name}.png" for path in paths}
    taken: dict[str, Path] = {}
    for path, name in names.items():
        if (other := taken.setdefault(name, path)) != path:
            raise InputError(
                f"--overlay: {other} and {path} would both be drawn as {name}, expected a folder "
                "of overlays for each"
            )
    return names


def _openable(paths: Sequence[Path], skip_bad: bool) -> list[Path]:
    """The ``paths`` that are pictures; peculiar or skipped ones are reported on stderr.

    Without ``skip_bad`` all are fully decoded first, so that bad ones are refused before any work.
    With it only headers are read here; damaged pictures are skipped later.

    Raises:
        InputError: one is bad, without ``skip_bad``; or none can be read.
    """

    def look(path: Path) -> Header | InputError:
        try:
            return pictures.header(path, whole=not skip_bad)
        except InputError as error:
            return error

    kept, bad = [], []
    for path, found in zip(paths, in_parallel(look, paths), strict=True):
        if isinstance(found, InputError):
            bad.append(found)
            continue
        if found.frames > 1:
            _say(f"{path}: holds {found.frames} pictures, the first is captioned")
        kept.append(path)
    if bad and not skip_bad:
        named = "; ".join(map(str, bad[:NAMED]))
        others = f"; and {len(bad) - NAMED} more" if len(bad) > NAMED else ""
        raise InputError(f"{named}{others}; --skip-bad leaves them out")
    for reason in bad:
        _say(f"skipped: {reason}")
    if not kept:
        raise InputError("no picture could be read")
    return kept


def _say(message: str) -> None:
    tqdm.write(f"captionbench: {message}", file=sys.stderr)
