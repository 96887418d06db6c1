"""The cost explorer: costs of a captioner at sizes that the reader types.

`costs` computes the closed forms of `benchmarks.perf`, and `script` prints them as JavaScript from
sympy's symbols, so that no formula is written twice. A browser test compares every printed digit.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import cache
from types import SimpleNamespace
from typing import Any

import sympy

from benchmarks import papers
from benchmarks.perf.cases.least_bytes import BYTES
from benchmarks.perf.flops import closed_forms, table_vi
from benchmarks.perf.flops.closed_forms import Component, Length, Mixing
from benchmarks.perf.roofline.devices import load_specs
from benchmarks.perf.scaling import saved_activations
from benchmarks.report.document import Page
from torch_impl.layers.transformer import Mixer
from torch_impl.models import Configuration

FORMS = ("literal", "factored")
DIGITS = 5
LARGEST = 100_000
"""The largest size that can be typed; costs at such sizes still have a prefix."""
Costs = dict[str, Any]


@dataclass(frozen=True)
class Size:
    """A size that the page asks for: its name in the address, a label, and its default."""

    name: str
    words: str
    default: int
    least: int = 1


SIZES = (
    Size("N_E", "N_E, expansions of a token (0: attention)", 16, least=0),
    Size("L", "L, features of an image", table_vi.FEATURES),
    Size("T", "T, tokens of a caption", 20, least=2),
    Size("d", "d, width", 512),
    Size("ff", "d_ff, feed-forward width", 2048),
    Size("heads", "attention heads", 8),
    Size("layers", "layers, each side", 3),
    Size("V", "vocabulary", table_vi.VOCABULARY),
    Size("features", "width of a feature", table_vi.D_FEATURE),
    Size("beam", "beam", 5),
    Size("batch", "batch, images", closed_forms.BATCH),
)
DEFAULTS: dict[str, Any] = {
    "G": [32, 64, 128, 256, 512],
    **{size.name: size.default for size in SIZES},
    "captions": "MS-COCO",
    "precision": "float32",
    "form": "literal",
    "device": "A100",
}
"""The page's initial state: ExpansionNet v2 as in v2's Table VI."""


def costs(state: Mapping[str, Any]) -> Costs:
    """Every number that the page shows, by name, unrounded; times by device.

    Args:
        state: a value for each of `DEFAULTS`; "G" may be empty and "N_E" 0, for attention.
    """
    v = _variables(state)
    encoder, decoder = _kinds(state)
    parts = [*_encoder(encoder, v), *_decoder(decoder, v)]
    found: Costs = {
        "flops": sum(part.flops for part in parts),
        "parameters": sum(part.parameters for part in parts),
        "cache": _cache(decoder, v),
    }
    for form in FORMS:
        macs = [part.macs if form == "literal" else part.factored for part in parts]
        counted = (of for of, part in zip(macs, parts, strict=True) if part.in_paper)
        found[f"paper {form}"] = table_vi.IMAGES * sum(counted)
        found[f"macs {form}"] = sum(macs)
        found[f"saved {form}"] = sum(
            saved(v, form) for saved in (_SAVED.get(encoder), _SAVED.get(decoder)) if saved
        )
        for name, device in load_specs().items():
            if state["precision"] in device.peak:
                at = {"peak": device.peak[state["precision"]], "bandwidth": device.bandwidth}
                found[f"{name} {form}"] = sum(
                    closed_forms.seconds(v.B * of, part.moved(v.B), width=v.width, **at)
                    for of, part in zip(macs, parts, strict=True)
                )
    return found


def _kinds(state: Mapping[str, Any]) -> tuple[str, str]:
    groups = len(state["G"])
    encoder = "attention" if not groups else "static" if groups == 1 else "block"
    return encoder, "dynamic" if state["N_E"] else "attention"


def _variables(state: Mapping[str, Any]) -> SimpleNamespace:
    """The symbols of the closed forms, as numbers."""
    T = Length.of([state["T"]])
    if state["captions"] == "MS-COCO":
        T = table_vi.RECORDED
    return SimpleNamespace(
        **{name: state[size] for name, size in _SAME.items()},
        N=sum(state["G"]),
        g=len(state["G"]),
        T1=T.mean,
        T2=T.square,
        T3=T.cube,
        width=BYTES[state["precision"]],
    )


_SAME = {
    **{name: name for name in ("N_E", "L", "T", "d", "ff", "heads", "layers", "V")},
    "f": "features",
    "K": "beam",
    "B": "batch",
}
"""The symbols that are sizes of the page."""


def _model(v: SimpleNamespace, *, expanded: bool) -> SimpleNamespace:
    """The fields of a `Configuration` that the closed forms read."""
    ends = "linear" if expanded else "norm"
    return SimpleNamespace(
        d_model=v.d,
        d_ff=v.ff,
        num_heads=v.heads,
        num_encoder_layers=v.layers,
        num_decoder_layers=v.layers,
        vocabulary_size=v.V,
        d_feature=v.f,
        max_length=closed_forms.largest(v.T, Configuration.max_length),
        encoder_reduction=ends,
        decoder_reduction=ends,
    )


def _encoder(kind: str, v: SimpleNamespace) -> tuple[Component, ...]:
    expanded = kind != "attention"
    mixing = Mixing("static" if expanded else kind, v.N, 2 if kind == "block" else 1)
    features = Length(v.L, v.L**2, v.L**3)
    model = _model(v, expanded=expanded)
    return closed_forms.encoder_components(mixing, features, model, v.B)


def _decoder(kind: str, v: SimpleNamespace) -> tuple[Component, ...]:
    captions, features = Length(v.T1, v.T2, v.T3), Length(v.L, v.L**2, v.L**3)
    model = _model(v, expanded=kind == "dynamic")
    return closed_forms.decoder_components(Mixing(kind, v.N_E), captions, features, model, v.B)


def _cache(kind: str, v: SimpleNamespace) -> Any:
    """Bytes of all layers' KV caches, for a batch."""
    one = closed_forms.kv_cache(kind, v.d, v.N_E, v.L, v.K * v.T, v.T, v.width)
    return v.B * v.layers * one


def _saved(form: Mapping[str, str]) -> Any:
    def of_layers(v: SimpleNamespace, name: str) -> Any:
        symbols = {"B": v.B, "L": v.L, "T": v.T, "d": v.d, "sumG": v.N, "|G|": v.g, "N_E": v.N_E}
        return v.layers * saved_activations.value(form[name], symbols)

    return of_layers


_STATIC, _DYNAMIC = map(_saved, (saved_activations.STATIC, saved_activations.DYNAMIC))
_SAVED = {"static": _STATIC, "block": _STATIC, "dynamic": _DYNAMIC}
"""Bytes that all layers' expansions save for backward, for a batch."""

PREFIXES = {
    "": [
        "",
        " × 10³",
        *(f" × 10{p}" for p in ("⁶", "⁹", "¹²", "¹⁵", "¹⁸", "²¹", "²⁴", "²⁷", "³⁰")),
    ],
    "B": [f" {prefix}B" for prefix in ("", *"kMGTPEZYRQ")],
    "s": [" ns", " µs", " ms", " s", " × 10³ s", " × 10⁶ s", " × 10⁹ s", " × 10¹² s", " × 10¹⁵ s"],
}


def printed(value: float, unit: str = "") -> str:
    """A cost as the page prints it: five digits, half rounded up, and a prefix of thousands."""
    scaled, place = float(value) * (1e9 if unit == "s" else 1), 0
    while scaled >= 1000:
        scaled, place = scaled / 1000, place + 1
    rounded = Context(DIGITS, ROUND_HALF_UP).create_decimal(Decimal(scaled))
    digits = f"{rounded:.{DIGITS - 1 - rounded.adjusted()}f}" if rounded else "0"
    return digits + PREFIXES[unit][place]


ROWS = {
    "paper": ("multiply-accumulates, Table VI's convention", ""),
    "macs": ("multiply-accumulates an image, all parts", ""),
    "flops": ("true FLOPs an image", ""),
    "parameters": ("parameters", ""),
    "saved": ("saved activations of the expansions, batch", "B"),
    "cache": ("KV cache, batch and beam", "B"),
}
"""Labels and units of the numbers of `costs`, except times, which are in seconds."""
BY_FORM = ("paper", "macs", "saved")


def unit_of(name: str) -> str:
    """The unit of a number of `costs`."""
    of_row = ROWS.get(name.partition(" ")[0])
    return of_row[1] if of_row else "s"


def page() -> Page:
    """The page, which needs no record."""
    return Page(
        "explorer",
        "Cost explorer",
        "What a captioner of any size costs, by closed form: nothing here is measured. The "
        "address holds what you chose.",
        template="explorer.html",
        data={
            "formulas": script(),
            "presets": presets(),
            "sizes": SIZES,
            "precisions": list(BYTES),
            "devices": list(load_specs()),
            "rows": {name: words for name, (words, _) in ROWS.items()},
            "by_form": BY_FORM,
            "forms": FORMS,
            "images": table_vi.IMAGES,
            "lengths": table_vi.RECORDED,
        },
        published=False,
    )


def presets() -> list[dict[str, Any]]:
    """A state for each row of v2's Table VI, with what the paper prints."""
    table = papers.load(table_vi.PAPER).table(table_vi.TABLE)
    return [
        {
            "name": row.printed,
            "paper": table.cell(row.name, table_vi.COLUMN).meant,
            "state": DEFAULTS
            | {
                "G": list(Mixer.parse(row.encoder or "").coefficients),
                "N_E": sum(Mixer.parse(row.decoder or "").coefficients),
            },
        }
        for row in table.rows
    ]


@cache
def script() -> str:
    """The page's data, and the closed forms as JavaScript functions of the symbols."""
    names = (*_SAME, "N", "g", "T1", "T2", "T3", "width", "macs", "moved", "peak", "bandwidth")
    v = SimpleNamespace(**{name: sympy.Symbol(f"v.{name}", positive=True) for name in names})
    halves = {
        "encoder": {kind: _parts(_encoder(kind, v)) for kind in ("attention", "static", "block")},
        "decoder": {kind: _parts(_decoder(kind, v)) for kind in ("attention", "dynamic")},
    }
    saved = {kind: {f: _function(of(v, f)) for f in FORMS} for kind, of in _SAVED.items()}
    cache = {kind: _function(_cache(kind, v)) for kind in ("attention", "dynamic")}
    seconds = _function(
        closed_forms.seconds(v.macs, v.moved, width=v.width, peak=v.peak, bandwidth=v.bandwidth)
    )
    lengths = table_vi.RECORDED
    data = {
        "defaults": DEFAULTS,
        "largest": LARGEST,
        "least": {size.name: size.least for size in SIZES},
        "digits": DIGITS,
        "prefixes": PREFIXES,
        "units": {name: unit for name, (_, unit) in ROWS.items()},
        "byForm": BY_FORM,
        "bytes": BYTES,
        "same": _SAME,
        "images": table_vi.IMAGES,
        "captions": {"T1": lengths.mean, "T2": lengths.square, "T3": lengths.cube},
        "presets": presets(),
        "devices": [
            {"name": d.name, "peak": d.peak, "bandwidth": d.bandwidth}
            for d in load_specs().values()
        ],
    }
    return (
        f"const DATA = {json.dumps(data)};\nconst PARTS = {_object(halves)};\n"
        f"const SAVED = {_object(saved)};\nconst CACHE = {_object(cache)};\n"
        f"const SECONDS = {seconds};\n"
    )


def _parts(parts: Iterable[Component]) -> list[dict[str, Any]]:
    """Components as JavaScript; ``flops`` are in the papers' order of operations."""
    B = sympy.Symbol("v.B", positive=True)
    return [
        {
            "name": json.dumps(f"{part.half}: {part.name}"),
            "inPaper": json.dumps(part.in_paper),
            "literal": _function(part.macs),
            "factored": _function(part.factored),
            "flops": _function(part.flops),
            "parameters": _function(part.parameters),
            "moved": _function(part.moved(B)),
        }
        for part in parts
    ]


def _function(form: Any) -> str:
    return f"v => {sympy.jscode(sympy.sympify(form))}"


def _object(value: Any) -> str:
    """A JavaScript literal, whose innermost strings are code."""
    if isinstance(value, dict):
        return "{" + ",\n".join(f"{name}: {_object(of)}" for name, of in value.items()) + "}"
    return f"[{', '.join(map(_object, value))}]" if isinstance(value, list) else str(value)
