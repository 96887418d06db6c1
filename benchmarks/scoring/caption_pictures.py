"""From picture files to captions: a backbone's features of each, then beam search in batches."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
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
from benchmarks.files import check_writable, read_json, write_atomically
from benchmarks.run_folder import RunFolder
from benchmarks.scoring import captioners, overlay, released
from benchmarks.scoring.captioners import AnyDecoder, Found, Single
from torch_impl.models import Captioner, EndToEnd
from torch_impl.models.vision import Swin

NAMED = 8
"""Bad pictures that a refusal names; it counts the others."""


class Words(Protocol):
    """The words of a model's ids."""

    def decode(self, ids: Iterable[int]) -> str:
        """The caption that some ids are."""


def run(arguments: argparse.Namespace) -> int:
    """Caption picture files, a line each, or as JSON.

    Raises:
        InputError: bad input, by name; a bad picture only without ``--skip-bad``.
    """
    if arguments.batch_size < 1:
        raise InputError(f"--batch-size is {arguments.batch_size}, expected at least 1")
    if arguments.json and str(arguments.json) != "-":
        check_writable(arguments.json)
    paths = _openable(pictures.find(arguments.pictures), arguments.skip_bad)
    overlays = _overlay_names(paths) if arguments.overlay else {}
    backbone, captioner, vocabulary = _loaded(arguments)
    attending = captioner if isinstance(captioner, Captioner) else None
    if arguments.overlay and not attending:
        raise InputError("--overlay: expected one model with cross-attention")
    captioner = captioners.to(captioner, arguments.device)
    backbone.to(arguments.device)

    middle = captioners.middle_word(vocabulary, arguments.middle_word)
    results: list[dict[str, Any]] = []
    as_lines = str(arguments.json) != "-"
    made = features_of(paths, backbone, arguments.device, arguments.skip_bad)
    with tqdm(total=len(paths), unit="picture", disable=None) as bar:
        while batch := list(islice(made, arguments.batch_size)):
            features = torch.stack([rows for _, rows in batch])
            found = captioners.search(
                captioner,
                features,
                beam_size=arguments.beam_size,
                max_length=arguments.max_length,
                num_return=1 if arguments.num_return is None else arguments.num_return,
                middle=middle,
            )
            for (path, rows), hypotheses in zip(batch, found, strict=True):
                if arguments.overlay and attending:
                    tokens = hypotheses[0].tokens
                    png = _drawn(path, attending, vocabulary, rows, tokens, arguments.head)
                    with write_atomically(arguments.overlay / overlays[path], "wb") as file:
                        file.write(png)
                results.append(_result(path, hypotheses, vocabulary))
                if as_lines:
                    bar.write(as_text(results[-1]), file=sys.stdout)
            bar.update(len(batch))
    if not results:
        raise InputError("no picture could be read")
    if not as_lines:
        print(json.dumps(results, ensure_ascii=False, indent=1))
    elif arguments.json:
        with write_atomically(arguments.json) as file:
            json.dump(results, file, ensure_ascii=False, indent=1)
    return 0


def _loaded(arguments: argparse.Namespace) -> tuple[Backbone, AnyDecoder, Words]:
    """What the models see with, the captioner of what that sees, and its words."""
    places = arguments.checkpoint
    if arguments.words:
        if len(places) > 1:
            raise InputError("--words goes with one --checkpoint")
        groups = arguments.groups or released.GROUPS
        model, words = released.load(places[0], arguments.words, groups)
        return *backbone_of(model, places[0], arguments.backbone), words
    models, vocabulary = captioners.load_all(places)
    if len(models) > 1 and any(isinstance(model, EndToEnd) for model in models):
        raise InputError("--checkpoint: models with backbones of their own are no ensemble")
    # a backbone has one set of weights, which every run is held to
    seeing = [
        backbone_of(model, place, arguments.backbone)
        for model, place in zip(models, places, strict=True)
    ]
    names = sorted({backbone.name for backbone, _ in seeing})
    if len(names) > 1:
        raise InputError(f"--checkpoint: trained on features of {' and '.join(names)}")
    return seeing[0][0], captioners.together([model for _, model in seeing]), vocabulary


def backbone_of(
    model: Single, checkpoint: Path, chosen: str | None = None
) -> tuple[Backbone, Single]:
    """What a run's model sees with, and the captioner of what that sees.

    An end to end model has its own backbone; another was trained on the features of the one that
    the run's configuration names, or else of the ``chosen`` one.

    Args:
        model: the run's.
        checkpoint: the run's folder, or a checkpoint in it.
        chosen: a backbone's name.

    Raises:
        InputError: the run does not say and none is chosen, or another one is; the backbone is not
            as it was, in its weights say, when the run was trained.
    """
    if isinstance(model, EndToEnd):
        if chosen:
            raise InputError(f"{checkpoint}: has a backbone of its own, not {chosen}")
        return Swin(model.backbone), model.captioner
    folder = RunFolder(checkpoint if checkpoint.is_dir() else checkpoint.parent)
    config = read_json(folder.config, "the configuration of a training run")
    then = config.get("backbone", {}) if isinstance(config, dict) else {}
    if not isinstance(then, dict):
        raise InputError(f"{folder.config}: the backbone is {then!r}, expected its signature")
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
    """The features (L, d_feature) of each picture, in their order, a few made ahead.

    Raises:
        InputError: a picture that turns out to be damaged; with ``skip_bad`` it is left out, with
            a line on stderr.
    """

    def extract(batch: Sequence[Path]) -> list[tuple[Path, Tensor | InputError]]:
        made: dict[Path, Tensor | InputError] = {}
        pixels = {}
        for path in batch:
            try:
                pixels[path] = pictures.squeeze(pictures.read(path), backbone.image_size)
            except InputError as error:
                if not skip_bad:
                    raise InputError(f"{error}; --skip-bad goes on without") from error
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
    """A picture's captions: a line, or the picture and an indented line for each of several."""
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
    """A caption's overlay; the end token has no panel."""
    weights = overlay.looks(model, features, tokens, head)
    words = [vocabulary.decode([token]) for token in tokens[1:] if token != model.end_id]
    return overlay.draw(pictures.read(path), words, weights[: len(words)])


def _overlay_names(paths: Sequence[Path]) -> dict[Path, str]:
    """What the pictures' overlays are called: dog.png, or dog.jpg.png where there are more dogs.

    Raises:
        InputError: two would have one name.
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
    """Those of ``paths`` whose headers are a picture's; what is peculiar is said on stderr.

    What is bad is refused before the work begins, so all is read; what is skipped, when reached.

    Raises:
        InputError: some are not, or are damaged, and ``skip_bad`` is not given; or none is.
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
        raise InputError(f"{named}{others}; --skip-bad goes on without")
    for reason in bad:
        _say(f"skipped: {reason}")
    if not kept:
        raise InputError("no picture could be read")
    return kept


def _say(message: str) -> None:
    tqdm.write(f"captionbench: {message}", file=sys.stderr)
