"""Layer norm, feed-forward, encoder and decoder layers, and whole captioners."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.verify import gradients, properties
from benchmarks.verify.cases import Array, Case
from benchmarks.verify.draw import Draw, Pins
from benchmarks.verify.operators import attention, expansion
from benchmarks.verify.operators.operator import (
    GRADIENT,
    NORMAL_RANGE,
    UNEVEN,
    Operator,
    Property,
)
from reference import primitives, transformer
from reference.primitives import Integers, Parameters

REDUCTIONS = ("none", "norm", "linear")


def feed_forward(draw: Draw, d: int, d_ff: int, prefix: str = "") -> dict[str, Array]:
    """Parameters of a feed-forward layer."""
    first = draw.linear(f"{prefix}linear_1", d_ff, d)
    return first | draw.linear(f"{prefix}linear_2", d, d_ff)


def mixer(draw: Draw, name: str, decodes: bool) -> str:
    """A mixer as text, such as "static:2,3"; ``decodes`` excludes static ones."""
    kinds = (
        ("attention", "aoa", "dynamic") if decodes else ("attention", "aoa", "dynamic", "static")
    )
    kind = draw.choose(name, kinds)
    if kind == "static":
        return f"static:{','.join(map(str, expansion.groups(draw)))}"
    return f"dynamic:{draw.size('N_E', 4, large=(17, 33))}" if kind == "dynamic" else str(kind)


def _mixing(draw: Draw, mixer: str, d: int, prefix: str) -> dict[str, Array]:
    kind, _, sizes = mixer.partition(":")
    if kind in ("attention", "aoa"):
        return attention.parameters(draw, d, kind == "aoa", prefix)
    maps = ("condition",) if kind == "dynamic" else ()
    N = sum(map(int, sizes.split(",")))
    return expansion.parameters(draw, N, d, *maps, prefix=prefix)


def layer(
    draw: Draw, mixer: str, d: int, d_ff: int, decodes: bool, prefix: str = ""
) -> dict[str, Array]:
    """Parameters of an encoder or decoder layer."""
    aoa = mixer == "aoa"
    found = _mixing(draw, mixer, d, f"{prefix}mixer.")
    if decodes:
        found |= attention.parameters(draw, d, aoa, f"{prefix}cross_attention.")
    if not aoa:
        found |= feed_forward(draw, d, d_ff, f"{prefix}feed_forward.")
    for i in range(1, 2 + decodes + (not aoa)):
        found |= draw.norm(f"{prefix}norm_{i}.", d)
    for name in ("gate.bias", "selector.bias"):  # gates
        if f"{prefix}mixer.{name}" in found:
            found[f"{prefix}mixer.{name}"] *= draw.factor("huge") * draw.factor("large_scores")
    return found


def _hidden(draw: Draw) -> int:
    return draw.size("d_ff", 3, large=(130, 2050))


def _stack(
    draw: Draw,
    mixer: str,
    d: int,
    d_ff: int,
    layers: int,
    reduction: str,
    decodes: bool,
    prefix: str,
) -> dict[str, Array]:
    found: dict[str, Array] = {}
    for i in range(layers):
        found |= layer(draw, mixer, d, d_ff, decodes, f"{prefix}layers.{i}.")
    if reduction == "linear":
        found |= draw.linear(f"{prefix}reduce", d, layers * d)
    if reduction != "none":
        found |= draw.norm(f"{prefix}norm.", d)
    return found


def _shift(draw: Draw) -> float:
    """What is added to all channels; not zero if pinned."""
    return 4096.0 * draw.choose("shifted", (False,))


SHIFTED: Mapping[str, tuple[Pins, str]] = {
    "shifted": ({"shifted": True}, "rows whose mean is thousands of times their deviation")
}


def _layer_norms(draw: Draw) -> Case:
    d = draw.size("d", 6, large=(40, 130, 512))
    L = draw.size("L", 6, large=(17, 33, 144, 200))
    X = draw.inputs(L, d) + _shift(draw)
    if (channel := draw.choose("outlier", ("none",))) != "none":
        X[:, {"first": 0, "last": -1, "other": d // 2}[channel]] *= 128
    scale = draw.choose("scale", (1.0,))
    return X, {name: scale * array for name, array in draw.norm("", d).items()}


def _feed_forwards(draw: Draw) -> Case:
    d, d_ff = draw.size("d", 6, large=(40, 130, 512)), draw.size("d_ff", 6, large=(130, 2050))
    L = draw.size("L", 6, large=(17, 33, 144, 200))
    # in "huge" hidden units pass the largest number of float16
    return draw.inputs(L, d) * (16 if draw.regime == "huge" else 1), feed_forward(draw, d, d_ff)


def _encoder_layers(draw: Draw) -> Case:
    kind = mixer(draw, "mixer", False)
    num_heads, d = attention.heads(draw, 2)
    X = draw.array(draw.size("L", 6, large=(17, 33, 144, 200)), d) + _shift(draw)
    return X, layer(draw, kind, d, _hidden(draw), False), kind, num_heads


def _decoder_layers(draw: Draw) -> Case:
    kind = mixer(draw, "mixer", True)
    num_heads, d = attention.heads(draw, 2)
    X = draw.array(draw.size("T", 6, large=(17, 40)), d) + _shift(draw)
    memory = draw.inputs(draw.size("L", 6, large=(17, 33, 144, 200)), d)
    return X, memory, layer(draw, kind, d, _hidden(draw), True), kind, num_heads


def _captioners(draw: Draw) -> Case:
    encoder, decoder = mixer(draw, "encoder", False), mixer(draw, "decoder", True)
    reductions = tuple(draw.choose(f"{side}_reduction", REDUCTIONS) for side in ("first", "second"))
    num_heads, d = attention.heads(draw, 2)
    d_ff, unused = _hidden(draw), draw.size("unused", 3, least=0)
    layers, decoder_layers = (draw.size(f"{of}layers", 2, large=(3,)) for of in ("", "decoder_"))
    V = draw.size("V", 5, large=(10_001,), least=2)
    d_feature = draw.size("d_feature", 3, large=(130, 2050))
    L, T = draw.size("L", 4, large=(33, 144, 200)), draw.size("T", 4, large=(20, 40))
    parameters = (
        draw.linear("input", d, d_feature)
        | _stack(draw, encoder, d, d_ff, layers, reductions[0], False, "encoder.")
        | {"embedding.weight": draw.array(V, d), "positions.weight": draw.array(T + unused, d)}
        | _stack(draw, decoder, d, d_ff, decoder_layers, reductions[1], True, "decoder.")
        | draw.linear("vocabulary", V, d)
    )
    shift = _shift(draw)
    parameters["input.bias"] += shift
    parameters["positions.weight"] += shift
    tokens = draw.words(V, T)
    features = draw.array(L, d_feature)
    return features, tokens, parameters, encoder, decoder, num_heads, *reductions


def captioner(
    features: Array,
    tokens: Integers,
    parameters: Parameters,
    encoder: str,
    decoder: str,
    num_heads: int,
    encoder_reduction: str,
    decoder_reduction: str,
) -> Array:
    """The oracle's encoder and decoder."""
    memory = transformer.encode(features, parameters, encoder, num_heads, encoder_reduction)
    return transformer.decode(tokens, memory, parameters, decoder, num_heads, decoder_reduction)


NORM = (
    "Layer norms have the biased variance and an epsilon of 1e-5. The mean of a row may be "
    "thousands of times its deviation: E(X^2) - E(X)^2 is not accurate enough."
)
PRE_NORM = (
    "Each part is x + part(norm(x)); with aoa there is no feed-forward, and cross-attention is "
    "attention-on-attention too."
)


def _layer(decodes: bool) -> Operator:
    arguments = ("X", "memory") if decodes else ("X",)
    where = "memory: (L, d), the encoder's output. " if decodes else ""
    kinds = f"attention, aoa, {'' if decodes else 'static:N,..., '}dynamic:N"
    return Operator(
        "decoder_layer" if decodes else "encoder_layer",
        (*arguments, "parameters", "mixer", "num_heads"),
        "(T, d)" if decodes else "(L, d)",
        f"A pre-norm layer. X: ({'T' if decodes else 'L'}, d). {where}parameters: named as "
        f"torch_impl.layers.transformer.{'Decoder' if decodes else 'Encoder'}Layer's state_dict. "
        f"mixer: {kinds}.",
        transformer.decoder_layer if decodes else transformer.encoder_layer,
        _decoder_layers if decodes else _encoder_layers,
        {"expansionnet_v1": (11,), "expansionnet_v2": (12,)}
        if decodes
        else {"expansionnet_v1": (10,), "expansionnet_v2": (11,)},
        conventions=(NORM, PRE_NORM, expansion.PSI)
        + (("A decoder's mixer is causal; its cross-attention is not.",) if decodes else ()),
        special=SHIFTED,
        regimes=("zeros", *(("huge",) if decodes else ()), "large_scores"),
        has_kinks=True,
        extra_properties=(Property("causality", properties.causality),) if decodes else (),
        by=(*arguments, "parameters"),
        sequences=1 + decodes,
        rows=not decodes,
        empty=not decodes,
        dtypes=NORMAL_RANGE,
        batches=({"B": 48, "T": 40},)
        if decodes
        else ({"B": 16, "L": 144, "num_heads": 8, "d_k": 64, "mixer": "attention"},),
        sizes=(
            {"L": 17, "num_heads": 8, "d_k": 64},
            {"L": 144, "num_heads": 8, "d_k": 40},
            {"L": 8, **({"T": 8} if decodes else {}), "num_heads": 8, "d_k": 16},
        ),
    )


OPERATORS = (
    Operator(
        "layer_norm",
        ("X", "parameters"),
        "(L, d)",
        "Layer normalisation of each row of X: (L, d). parameters: weight, bias, each (d,).",
        primitives.layer_norm,
        _layer_norms,
        conventions=(NORM,),
        special={
            "one_channel": ({"d": 1}, "a single channel, of no variance"),
            "large_weights": ({"scale": 64.0}, "weights and biases in the tens"),
            "outlier": (
                {"outlier": ("first", "last", "other"), "d": (130, 512), "dtype": "float32"},
                "a channel a hundred times the others, in float32",
            ),
            **SHIFTED,
        },
        regimes=("zeros", "huge"),
        extra_properties=(
            Property(
                "gradient_of_shifted",
                gradients.gradient_of_shifted,
                needs=(GRADIENT,),
                settings={"by": (0, 1)},
            ),
        ),
        by=("X", "parameters"),
        sizes=(
            {"L": 144, "d": 512},
            {"L": 17, "d": UNEVEN},
            {"L": 3, "d": 1536},
            {"L": 48 * 144, "d": 40},
        ),
    ),
    Operator(
        "feed_forward",
        ("X", "parameters"),
        "(L, d)",
        "linear_2(relu(linear_1(X))) of X: (L, d). parameters: linear_1.weight (d_ff, d), "
        "linear_1.bias, linear_2.weight (d, d_ff), linear_2.bias.",
        primitives.feed_forward,
        _feed_forwards,
        regimes=("zeros", "huge"),
        by=("X", "parameters"),
        sizes=(
            {"L": 144, "d": 512, "d_ff": 2048},
            {"L": 17, "d": UNEVEN, "d_ff": UNEVEN},
            {"L": 48 * 144, "d": 40},
        ),
    ),
    _layer(decodes=False),
    _layer(decodes=True),
    Operator(
        "captioner",
        (
            *("features", "tokens", "parameters", "encoder", "decoder", "num_heads"),
            *("encoder_reduction", "decoder_reduction"),
        ),
        "(T, V)",
        "Log-probabilities of the word after each of tokens: (T,), given features: (L, d_feature). "
        "parameters: named as torch_impl.models.Captioner's state_dict. encoder, decoder: mixers. "
        "Reductions: linear, norm, none.",
        captioner,
        _captioners,
        {"expansionnet_v1": (12,)},
        conventions=(
            NORM,
            PRE_NORM,
            expansion.PSI,
            "Embeddings are multiplied by sqrt(d) before learned positions are added, those of the "
            "first T rows of positions.weight.",
            "linear: layer norm of x_N plus a linear map of [x_1, ..., x_N], where x_n is the "
            "output of layer n. norm: layer norm of x_N. none: x_N.",
        ),
        special=SHIFTED,
        regimes=("zeros", "huge", "large_scores"),
        has_kinks=True,
        by=("features", "parameters"),
        dtypes=NORMAL_RANGE,
        sizes=(
            {"layers": 11, "decoder_layers": 11, "d_k": 3},
            # with a single channel a layer norm hides the features
            {"d_feature": 2050, "num_heads": 2, "d_k": 3},
            {"d_feature": 2048, "num_heads": 2, "d_k": 3},
        ),
    ),
)
