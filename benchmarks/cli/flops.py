"""``captionbench flops``: Table VI compared with the paper's, any model by its parts, a plot."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path

from msgspec import to_builtins

from benchmarks.cli.options import add_json, add_lengths, at_least
from benchmarks.errors import InputError
from benchmarks.perf.flops.closed_forms import BATCH, Component, Length
from benchmarks.perf.flops.drawing import MOST_VECTORS, PLOT_FORMATS, draw
from benchmarks.perf.flops.table_vi import (
    D_FEATURE,
    DECODER,
    ENCODER,
    FEATURES,
    IMAGES,
    VOCABULARY,
    Captions,
    Count,
    Line,
    captions,
    configuration,
    count,
    table_vi,
)
from torch_impl.layers.transformer import REDUCTIONS, Mixer
from torch_impl.models import Configuration


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options; those of the model are named by the fields of `Configuration`."""
    add_lengths(parser)
    model = parser.add_argument_group("model (default: ExpansionNet v2)")
    model.add_argument(
        "--encoder", default=ENCODER, help="attention, aoa, static:G,G,.. or dynamic:N"
    )
    model.add_argument("--decoder", default=DECODER, help="attention, aoa or dynamic:N")
    for option, field, default, text in (
        ("--d-model", "d_model", 512, "width of the model"),
        ("--d-ff", "d_ff", 2048, "width of the feed-forward layers"),
        ("--num-heads", "num_heads", 8, "attention heads"),
        ("--num-encoder-layers", "num_encoder_layers", 3, "layers of the encoder"),
        ("--num-decoder-layers", "num_decoder_layers", 3, "layers of the decoder"),
        ("--vocabulary-size", "vocabulary_size", VOCABULARY, "words"),
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
    work.add_argument(
        "--caption-length",
        type=int,
        metavar="T",
        help="length of every caption (default: see --data)",
    )
    work.add_argument(
        "--num-images", type=at_least(1), default=IMAGES, metavar="N", help=f"(default {IMAGES})"
    )
    work.add_argument(
        "--batch-size",
        type=at_least(1),
        default=BATCH,
        help=f"images that share a folded key projection; factored only (default {BATCH})",
    )
    add_json(parser)
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
    for half in ("encoder", "decoder"):
        try:
            Mixer.parse(given[half], causal=half == "decoder")
        except ValueError as error:
            raise InputError(f"--{half}: {error}") from None
    model = configuration(**given)
    for half in ("encoder", "decoder"):
        text = getattr(model, half)
        if sum(Mixer.parse(text).coefficients) > MOST_VECTORS:
            shown = text if len(text) <= 40 else f"{text[:37]}..."
            raise InputError(f"--{half} {shown}: expected at most {MOST_VECTORS:,} vectors")
    return model


def _length(tokens: int, option: str) -> Length:
    try:
        return Length.of([tokens])
    except ValueError as error:
        raise InputError(f"{option}: {error}") from error


def run(arguments: argparse.Namespace) -> int:
    """Print the parts of the chosen model and, if all options are the paper's, Table VI."""
    lengths = captions(arguments.data)
    if arguments.caption_length is not None:
        lengths = Captions(
            _length(arguments.caption_length, "--caption-length"), "given", "by --caption-length"
        )
    _length(arguments.length, "--length")
    model = _model(arguments)
    images, batch = arguments.num_images, arguments.batch_size
    work = {"features": arguments.length, "images": images, "batch": batch}
    parts, total = count(model, lengths.length, **work)
    papers_own = model == configuration() and lengths.status != "given"
    papers_own &= work == {"features": FEATURES, "images": IMAGES, "batch": BATCH}
    table = table_vi(lengths.length) if papers_own else []
    if arguments.plot:
        draw(arguments.plot, lengths.length, model, table, **work)
    if arguments.json:
        content = {
            "captions": asdict(lengths) | {"data": to_builtins(lengths.data) or None},
            "table": [asdict(line) for line in table],
            "configuration": model.to_dict(),
            "work": work,
            "components": [
                {**asdict(part), **{n: getattr(part, n) for n in ("macs", "elementwise", "flops")}}
                for part in parts
            ],
            "total": asdict(total),
        }
        print(json.dumps(content, indent=2))
        return 0
    T = lengths.length
    print(f"T = {T.mean:.3f}, T^2 = {T.square:.2f}: {lengths.status} ({lengths.source})\n")
    if table:
        _print_table(table)
    _print_parts(model, parts, total, images)
    return 0


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
