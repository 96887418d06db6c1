"""v2's Table VI by closed form, and the same count for any other configuration.

The paper's convention, recovered from its twelve numbers: one multiply-accumulate is one "FLOP";
matrix products and linear layers only, no backbone; 5,000 images, for each one encoder pass and one
teacher-forced decoder pass over a caption of T tokens, start and end included; the vocabulary layer
of 10,000 words is counted, the projection of the image features is not, and the linear layer over
all layers' outputs is counted in a half that is expanded, because only such a half has one.

T and T^2 are means over the reference captions of the validation split, recorded here and
recomputed if the data are given; no other number is free. A word is a run of characters between
white space and hyphens that has a letter, a digit or an ampersand. (The words of training, where a
hyphen joins, give 12.459 and 160.58, and change no row by more than 0.02 %.)

A second reading fits the encoder equally well: count the projection of the image features in every
row, but neither the encoder's layer over all outputs nor attention's output projection. With three
layers and features of 3 d_model, all three of these cost 3 L d^2, so no row can tell them apart.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import papers, records
from benchmarks.data.captions import read_references
from benchmarks.errors import InputError
from benchmarks.files import read_bytes, sha256
from benchmarks.kinds import Curve, Operations
from benchmarks.perf.flops.closed_forms import (
    BATCH,
    Component,
    Length,
    components,
    static_literal,
    static_reassociated,
)
from benchmarks.training.configuration import reduction
from torch_impl.models import Configuration

PAPER, TABLE, COLUMN = "expansionnet_v2", "VI", "FLOPs"
IMAGES = 5000
FEATURES = 144
VOCABULARY = 10_000
D_FEATURE = 1536
ENCODER, DECODER = "static:32,64,128,256,512", "dynamic:16"

RECORDED = Length(12.469, 160.86, 2169.6)
"""The means of T, T^2, T^3 over the 25,010 captions of the Karpathy validation split of MS-COCO."""

CAPTIONS_FILE = Path("coco_karpathy") / "dataset_coco_karpathy_val.json"
_WORD = re.compile(r"[^\s-]*[^\W_][^\s-]*|&")


@dataclass(frozen=True)
class Captions:
    """Caption lengths, and where they are from: "same data", "recorded means" or "given"."""

    length: Length
    status: str
    source: str
    data: records.Data = records.NO_DATA


def caption_length(captions: Iterable[str]) -> Length:
    """The means of T, T^2, T^3 over raw captions, start and end included.

    Raises:
        ValueError: there are no captions.
    """
    return Length.of(len(_WORD.findall(caption)) + 2 for caption in captions)


def captions(data: Path | None) -> Captions:
    """Lengths of the validation captions under ``data``; without them, the recorded means.

    Raises:
        InputError: ``data`` is not a folder, or its captions are not in Karpathy's layout.
    """
    if data is None:
        return Captions(RECORDED, "recorded means", "no data folder given")
    if not data.is_dir():
        raise InputError(f"{data}: no such folder, expected the data folder")
    path = data / CAPTIONS_FILE
    if not path.exists():
        return Captions(RECORDED, "recorded means", f"the data folder has no {CAPTIONS_FILE}")
    references = read_references(path, "val")
    try:
        length = caption_length(text for texts in references.values() for text in texts)
    except ValueError as error:
        raise InputError(f"{path}: {error}") from error
    data_set = records.Data(
        name="MS-COCO, Karpathy split",
        fingerprint=sha256(read_bytes(path, "validation captions")),
        split="val",
    )
    return Captions(length, "same data", f"computed from {CAPTIONS_FILE}", data_set)


@dataclass(frozen=True)
class Count:
    """The operations of a whole model, as `closed_forms` defines them; ``paper`` is v2's count."""

    paper: float
    paper_factored: float
    macs: float
    factored: float
    flops: float

    @classmethod
    def of(cls, parts: Sequence[Component], images: int) -> Count:
        """The sums over ``parts`` for ``images`` images."""
        counted = [part for part in parts if part.in_paper]
        return cls(
            images * sum(part.macs for part in counted),
            images * sum(part.factored for part in counted),
            images * sum(part.macs for part in parts),
            images * sum(part.factored for part in parts),
            images * sum(part.flops for part in parts),
        )


def configuration(encoder: str = ENCODER, decoder: str = DECODER, **sizes: Any) -> Configuration:
    """ExpansionNet v2's configuration with other mixers or ``sizes`` (fields of `Configuration`).

    Raises:
        InputError: a mixer or a size is invalid.
    """
    try:
        fields: dict[str, Any] = {
            "vocabulary_size": VOCABULARY,
            "d_feature": D_FEATURE,
            "encoder_reduction": reduction(encoder),
            "decoder_reduction": reduction(decoder),
            **sizes,
        }
        return Configuration(encoder=encoder, decoder=decoder, **fields)
    except ValueError as error:
        raise InputError(str(error)) from error


def count(
    model: Configuration,
    length: Length,
    *,
    features: int = FEATURES,
    images: int = IMAGES,
    batch: int = BATCH,
) -> tuple[tuple[Component, ...], Count]:
    """The components of ``model`` per image, and their sums over all images.

    Raises:
        InputError: a size below 1 or too large, or d_model not divisible by num_heads.
    """
    if images < 1:
        raise InputError(f"images must be at least 1, not {images}")
    try:
        parts = components(model, Length.of([features]), length, batch)
        return parts, Count.of(parts, images)
    except ValueError as error:
        raise InputError(str(error)) from error
    except OverflowError as error:
        raise InputError(f"the sizes are too large to count with ({error})") from error


@dataclass(frozen=True)
class Line:
    """A row of Table VI, in the paper's convention except ``flops``, the full count."""

    row: str
    printed: str
    encoder: str
    decoder: str
    paper: float
    ours: float
    difference_percent: float
    flops: float
    factored: float


def table_vi(length: Length) -> list[Line]:
    """All rows of v2's Table VI, computed for captions of that length."""
    table = papers.load(PAPER).table(TABLE)
    lines = []
    for row in table.rows:
        printed = table.cell(row.name, COLUMN).meant
        if row.encoder is None or row.decoder is None or not isinstance(printed, float):
            raise InputError(f"{PAPER} table {TABLE}: row {row.name!r} names no model")
        _, ours = count(configuration(row.encoder, row.decoder), length)
        lines.append(
            Line(
                row=row.name,
                printed=row.printed,
                encoder=row.encoder,
                decoder=row.decoder,
                paper=printed,
                ours=ours.paper,
                difference_percent=100 * (ours.paper / printed - 1),
                flops=ours.flops,
                factored=ours.paper_factored,
            )
        )
    return lines


COEFFICIENTS = tuple(2**power for power in range(12))


def sweep(
    length: Length, model: Configuration | None = None, form: str = "paper", **work: int
) -> dict[str, tuple[list[int], list[float]]]:
    """Operations over the coefficient of one half, the other half being attention.

    ``model`` gives the sizes (v2's by default), ``form`` is a field of `Count`, ``work`` goes to
    `count`. Static coefficients stop at 2,048, dynamic ones at 64. Returns (coefficients,
    operations).
    """
    sizes = (model or configuration()).to_dict()

    def operations(encoder: str, decoder: str) -> float:
        changed = {
            "encoder": encoder,
            "decoder": decoder,
            "encoder_reduction": reduction(encoder),
            "decoder_reduction": reduction(decoder),
        }
        return float(getattr(count(configuration(**(sizes | changed)), length, **work)[1], form))

    static, dynamic = list(COEFFICIENTS), list(COEFFICIENTS[:7])
    return {
        "static in the encoder": (static, [operations(f"static:{n}", "attention") for n in static]),
        "dynamic in the decoder": (
            dynamic,
            [operations("attention", f"dynamic:{n}") for n in dynamic],
        ),
    }


def make_records(key: str, data: Path | None) -> list[records.Record]:
    """A record for each row of Table VI, counted now; ``details`` have what the report adds.

    Raises:
        InputError: see `captions`.
    """
    began = time.perf_counter()
    known = captions(data)
    lines = table_vi(known.length)
    T = known.length
    per_layer = {
        "as printed": [static_literal(Length.of([FEATURES]), 512, n) / 1e6 for n in COEFFICIENTS],
        "W first": [static_reassociated(Length.of([FEATURES]), 512, n) / 1e6 for n in COEFFICIENTS],
    }
    lengths = f"T = {T.mean:.3f}, T^2 = {T.square:.2f}, {known.status} ({known.source})"
    curve = Curve(coefficients=list(COEFFICIENTS), lines=per_layer)
    return [
        records.make(
            Operations(factored=line.factored, true_flops=line.flops, lengths=lengths, curve=curve),
            paper=PAPER,
            table=TABLE,
            row=line.row,
            values={COLUMN: line.ours},
            status=known.status,
            key=key,
            n=IMAGES,
            data=known.data,
            wall_s=(time.perf_counter() - began) / len(lines),
        )
        for line in lines
    ]
