"""FLOPs by closed form: v2's Table VI regenerated, and any other configuration.

The paper's convention, recovered from its twelve numbers: one multiply-accumulate is one "FLOP";
matrix products and linear layers only, no backbone; 5,000 images, for each one encoder pass and one
teacher-forced decoder pass over a caption of T tokens, start and end included; the vocabulary layer
of 10,000 words is counted, the projection of the image features is not, and the linear layer over
all layers' outputs is counted in a half that is expanded, because only such a half has one.

T and T^2 are means over the reference captions of the validation split. They are recorded here, and
recomputed where the data are given; no other number is free. A word is a run of characters between
white space and hyphens that holds a letter, a digit or an ampersand. (Words as models are trained
on, where a hyphen joins, give 12.459 and 160.58, and no row then moves by more than 0.01 %.)

A second reading fits the encoder equally well: count the projection of the image features in every
row, and neither the encoder's layer over all outputs nor attention's output projection. With three
layers and features of 3 d_model, all three of these cost 3 L d^2, so no row can tell them apart.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks import papers
from benchmarks.closed_forms import BATCH, Component, Length, components
from benchmarks.datasets.captions import read_references
from benchmarks.errors import InputError
from benchmarks.files import write_atomically
from benchmarks.presets import reduction
from torch_impl.models import Configuration
from torch_impl.transformer import REDUCTIONS, Mixer

PAPER, TABLE, COLUMN = "expansionnet_v2", "VI", "FLOPs"
IMAGES = 5000
FEATURES = 144
VOCABULARY = 10_000
D_FEATURE = 1536
ENCODER, DECODER = "static:32,64,128,256,512", "dynamic:16"

RECORDED = Length(12.469, 160.86, 2169.6)
"""The means of T, T^2, T^3 over the 25,010 captions of the Karpathy validation split of MS-COCO."""

CAPTIONS_FILE = Path("coco_karpathy") / "dataset_coco_karpathy_val.json"
PLOT_FORMATS = ("svg", "png", "pdf")
_WORD = re.compile(r"[^\s-]*[^\W_][^\s-]*|&")


@dataclass(frozen=True)
class Captions:
    """How long the captions are, and where that is known from: "same data" or "recorded means"."""

    length: Length
    status: str
    source: str


def caption_length(captions: Iterable[str]) -> Length:
    """The means of T, T^2, T^3 over raw captions, start and end included.

    Raises:
        ValueError: there are no captions.
    """
    return Length.of(len(_WORD.findall(caption)) + 2 for caption in captions)


def captions(data: Path | None) -> Captions:
    """The caption lengths: of the validation captions under ``data``, else the recorded means.

    Raises:
        InputError: ``data`` is no folder, or its captions are not in Karpathy's layout.
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
    return Captions(length, "same data", f"computed from {CAPTIONS_FILE}")


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
    """ExpansionNet v2 unless the mixers or ``sizes`` (fields of `Configuration`) say otherwise.

    Raises:
        InputError: a mixer or a size that no model can have.
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
    """The components of ``model``, an image, and their sums over all images.

    Raises:
        InputError: a size below 1, or d_model not divisible by num_heads.
    """
    if images < 1:
        raise InputError(f"images must be at least 1, not {images}")
    try:
        parts = components(model, Length.of([features]), length, batch)
    except ValueError as error:
        raise InputError(str(error)) from error
    return parts, Count.of(parts, images)


@dataclass(frozen=True)
class Line:
    """A row of Table VI: all in the paper's convention but ``flops``, which is the full count."""

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
    """Operations over one expansion coefficient, the other half attention: (N_E, operations).

    ``model`` gives the sizes (v2's unless given), ``form`` is a field of `Count`, ``work`` goes to
    `count`. Static coefficients stop at 2,048, dynamic ones at 64.
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


def draw(
    path: Path, length: Length, model: Configuration, table: Sequence[Line], **work: int
) -> None:
    """Draw `sweep` in the paper's convention, as printed and factored, and the points of ``table``.

    Raises:
        InputError: ``path`` has another suffix than `PLOT_FORMATS`, or cannot be written.
    """
    suffix = path.suffix.removeprefix(".").lower()
    if suffix not in PLOT_FORMATS:
        raise InputError(f"{path}: unknown picture format, expected .{', .'.join(PLOT_FORMATS)}")
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot(xlabel="expansion coefficient", ylabel="10^12 multiply-accumulates")
    for form, style in (("paper", "-"), ("paper_factored", "--")):
        label = "as printed" if form == "paper" else "factored (closed form)"
        lines = sweep(length, model, form, **work)
        for colour, (name, (x, y)) in enumerate(lines.items()):
            axes.plot(x, [v / 1e12 for v in y], style, color=f"C{colour}", label=f"{name}, {label}")
    points = [
        (sum(mixer.coefficients), line.paper / 1e12)
        for line in table
        for mixer in (Mixer.parse(line.encoder), Mixer.parse(line.decoder))
        if "attention" in (line.encoder, line.decoder) and mixer.coefficients
    ]
    if points:
        axes.plot(*zip(*points, strict=True), "kx", label="v2, Table VI")
    axes.set_xscale("log", base=2)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=9)
    with write_atomically(path, "wb") as file:
        figure.savefig(file, format=suffix)


def data_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--data``, the folder whose captions give T and T^2."""
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        default=os.environ.get("CAPTIONBENCH_DATA") or None,
        help="data folder; its validation captions give T and T^2 (default: $CAPTIONBENCH_DATA, "
        "else their recorded means)",
    )


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options; those of the model are named by the fields of `Configuration`."""
    data_option(parser)
    model = parser.add_argument_group("model (default: ExpansionNet v2)")
    model.add_argument(
        "--encoder", default=ENCODER, help="attention, aoa, static:G,G,.. or dynamic:N"
    )
    model.add_argument("--decoder", default=DECODER, help="attention, aoa or dynamic:N")
    for option, field, default, text in (
        ("--d-model", "d_model", 512, "width of the model"),
        ("--ff", "d_ff", 2048, "width of the feed-forward layers"),
        ("--heads", "num_heads", 8, "attention heads"),
        ("--layers", "layers", 3, "layers of each half"),
        ("--vocabulary", "vocabulary_size", VOCABULARY, "words"),
        ("--d-feature", "d_feature", D_FEATURE, "width of an image feature"),
    ):
        help_text = f"{text} (default {default})"
        model.add_argument(option, dest=field, type=int, default=default, help=help_text)
    for half in ("encoder", "decoder"):
        model.add_argument(
            f"--{half}-reduction",
            choices=REDUCTIONS,
            help=f"how the {half} ends (default: linear where it is expanded, else norm)",
        )
    work = parser.add_argument_group("work")
    work.add_argument(
        "--length", type=int, default=FEATURES, help=f"features of an image (default {FEATURES})"
    )
    work.add_argument("--tokens", type=int, help="length of every caption (default: see --data)")
    work.add_argument("--images", type=int, default=IMAGES, help=f"images (default {IMAGES})")
    work.add_argument(
        "--batch",
        type=int,
        default=BATCH,
        help=f"images that share a folded key projection; factored only (default {BATCH})",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help=f"draw operations over expansion coefficients ({', '.join(PLOT_FORMATS)})",
    )


def _model(arguments: argparse.Namespace) -> Configuration:
    given = {
        field.name: getattr(arguments, field.name)
        for field in fields(Configuration)
        if getattr(arguments, field.name, None) is not None
    }
    layers = arguments.layers
    return configuration(**given, num_encoder_layers=layers, num_decoder_layers=layers)


def run(arguments: argparse.Namespace) -> int:
    """Print the parts of the chosen model and, where everything is the paper's, Table VI."""
    lengths = captions(arguments.data)
    if arguments.tokens is not None:
        if arguments.tokens < 1:
            raise InputError(f"--tokens must be at least 1, not {arguments.tokens}")
        lengths = Captions(Length.of([arguments.tokens]), "given", "by --tokens")
    if arguments.length < 1:
        raise InputError(f"--length must be at least 1, not {arguments.length}")
    model = _model(arguments)
    work = {"features": arguments.length, "images": arguments.images, "batch": arguments.batch}
    parts, total = count(model, lengths.length, **work)
    papers_own = model == configuration() and lengths.status != "given"
    papers_own &= work == {"features": FEATURES, "images": IMAGES, "batch": BATCH}
    table = table_vi(lengths.length) if papers_own else []
    if arguments.plot:
        draw(arguments.plot, lengths.length, model, table, **work)
    if arguments.json:
        content = {
            "captions": asdict(lengths),
            "table": [asdict(line) for line in table],
            "configuration": model.to_dict(),
            "work": work,
            "components": [_component(part) for part in parts],
            "total": asdict(total),
        }
        print(json.dumps(content, indent=2))
        return 0
    T = lengths.length
    print(f"T = {T.mean:.3f}, T^2 = {T.square:.2f}: {lengths.status} ({lengths.source})\n")
    if table:
        _print_table(table)
    _print_parts(model, parts, total, arguments.images)
    return 0


def _component(part: Component) -> dict[str, Any]:
    totals = {name: getattr(part, name) for name in ("macs", "elementwise", "flops")}
    return {**asdict(part), **totals}


def _print_table(table: Sequence[Line]) -> None:
    print(f"v2 Table VI, 10^12 operations for {IMAGES:,} images; the paper counts multiply-")
    print("accumulates, factored likewise; FLOPs are two each, with all that the paper leaves out")
    print(f"{'':58}{'paper':>7}{'ours':>9}{'diff %':>9}{'factored':>10}{'FLOPs':>9}")
    for line in table:
        print(
            f"{line.printed:58}{line.paper / 1e12:7.2f}{line.ours / 1e12:9.4f}"
            f"{line.difference_percent:+9.3f}{line.factored / 1e12:10.4f}{line.flops / 1e12:9.3f}"
        )
    print()


def _print_parts(
    model: Configuration, parts: Sequence[Component], total: Count, images: int
) -> None:
    print(f"{model.encoder} | {model.decoder}, 10^9 operations an image")
    print(f"{'':48}{'macs':>11}{'factored':>11}{'elementwise':>13}{'FLOPs':>11}")
    for part in parts:
        numbers = (part.macs, part.factored, part.elementwise, part.flops)
        mark = "" if part.in_paper else " (not in the paper's count)"
        _print_line(f"{part.half} {part.name}{mark}", *numbers)
        for equation in part.equations if len(part.equations) > 1 else ():
            flops = 2 * equation.macs + equation.elementwise
            _print_line(f"  {equation.name}", equation.macs, None, equation.elementwise, flops)
    elementwise = total.flops - 2 * total.macs
    numbers = (total.macs, total.factored, elementwise, total.flops)
    _print_line("total", *(number / images for number in numbers))
    print(f"\n{images:,} images in the paper's convention: {total.paper / 1e12:.4f} x 10^12")


def _print_line(name: str, *numbers: float | None) -> None:
    widths = (11, 11, 13, 11)
    cells = ("" if n is None else f"{n / 1e9:.5f}" for n in numbers)
    print(f"{name:48}" + "".join(f"{c:>{w}}" for c, w in zip(cells, widths, strict=True)))
