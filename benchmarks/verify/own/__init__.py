"""This project's implementations as candidates: the same contracts, the same properties."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.rouge.rouge import Rouge
from torch import Tensor, nn

from benchmarks.verify.own.arnet import (
    arnet_joint_loss,
    mean_centroid_distance,
    point_wise_distance,
    reconstruction_loss,
)
from benchmarks.verify.own.decoding import (
    beam_search,
    greedy,
    grid_beam_search,
    middle_out_beam_search,
    sample,
    scheduled_sampling,
)
from benchmarks.verify.own.middle_out import (
    general_attention,
    middle_out_captioner,
    middle_out_loss,
    middle_out_step,
    mse,
    symmetric_mse,
    symmetric_sequence,
)
from benchmarks.verify.own.modules import call
from benchmarks.verify.own.optimisation import (
    clip_gradients,
    gradient_descent,
    hyperbolic_warmup,
    linear_warmup,
    radam,
)
from benchmarks.verify.own.parts import Within, small_parts
from benchmarks.verify.own.recurrent import (
    attentive_lstm,
    library_lstm,
    lstm,
    lstm_cell,
    read_only_captioner,
    read_only_lstm,
    read_only_lstm_cell,
    recurrent_dropout,
    zoneout,
)
from torch_impl.cider import CiderD, padded
from torch_impl.expansion import DynamicExpansion, StaticExpansion
from torch_impl.layers.attention import AttentionOnAttention, MultiHeadAttention
from torch_impl.layers.transformer import (
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    Mixer,
)
from torch_impl.models import Captioner, Configuration
from torch_impl.training import objectives

Parameters = Mapping[str, Tensor]


def static_expansion(
    X: Tensor, parameters: Parameters, groups: Any, mask: Tensor, *, implementation: str
) -> Tensor:
    """``torch_impl.expansion.StaticExpansion``."""
    d = X.shape[-1]
    module = partial(StaticExpansion, d, groups, implementation=implementation)
    return call(module, parameters, X, mask)


def dynamic_expansion(
    X: Tensor, parameters: Parameters, causal: bool, mask: Tensor, *, implementation: str
) -> Tensor:
    """``torch_impl.expansion.DynamicExpansion``."""
    N_E, d = parameters["query_vectors"].shape
    module = partial(DynamicExpansion, d, N_E, causal=causal, implementation=implementation)
    return call(module, parameters, X, mask)


def multi_head_attention(
    X: Tensor, Y: Tensor, parameters: Parameters, num_heads: int, causal: bool, mask: Tensor
) -> Tensor:
    """``torch_impl.layers.attention.MultiHeadAttention``."""
    module = partial(MultiHeadAttention, X.shape[-1], num_heads)
    return call(module, parameters, X, Y, mask, causal)


def attention_on_attention(
    X: Tensor, Y: Tensor, parameters: Parameters, num_heads: int, causal: bool, mask: Tensor
) -> Tensor:
    """``torch_impl.layers.attention.AttentionOnAttention``."""
    module = partial(AttentionOnAttention, X.shape[-1], num_heads)
    return call(module, parameters, X, Y, mask, causal)


def layer_norm(X: Tensor, parameters: Parameters) -> Tensor:
    """The layer norm of ``torch_impl.layers.transformer``, PyTorch's."""
    return call(partial(nn.LayerNorm, X.shape[-1]), parameters, X)


def feed_forward(X: Tensor, parameters: Parameters) -> Tensor:
    """``torch_impl.layers.transformer.FeedForward``."""
    d_ff, d = parameters["linear_1.weight"].shape
    return call(partial(FeedForward, d, d_ff), parameters, X)


def _d_ff(parameters: Parameters) -> int:
    # with AoA there is no feed-forward, and any width will do
    weights = [w for name, w in parameters.items() if name.endswith("feed_forward.linear_1.weight")]
    return len(weights[0]) if weights else 1


def encoder_layer(
    X: Tensor, parameters: Parameters, mixer: str, num_heads: int, mask: Tensor
) -> Tensor:
    """``torch_impl.layers.transformer.EncoderLayer``."""
    sizes = {"d_ff": _d_ff(parameters), "num_heads": num_heads}
    module = partial(EncoderLayer, X.shape[-1], Mixer.parse(mixer), **sizes)
    return call(module, parameters, X, mask)


def decoder_layer(
    X: Tensor, memory: Tensor, parameters: Parameters, mixer: str, num_heads: int, mask: Tensor
) -> Tensor:
    """``torch_impl.layers.transformer.DecoderLayer``."""
    sizes = {"d_ff": _d_ff(parameters), "num_heads": num_heads}
    module = partial(DecoderLayer, X.shape[-1], Mixer.parse(mixer, causal=True), **sizes)
    return call(module, parameters, X, memory, None, mask)


def captioner(
    features: Tensor,
    tokens: Tensor,
    parameters: Parameters,
    encoder: str,
    decoder: str,
    num_heads: int,
    encoder_reduction: str,
    decoder_reduction: str,
) -> Tensor:
    """``torch_impl.models.Captioner``."""

    def layers(side: str) -> int:
        return len({name.split(".")[2] for name in parameters if name.startswith(f"{side}.layers")})

    vocabulary_size, d_model = parameters["embedding.weight"].shape
    configuration = Configuration(
        vocabulary_size=vocabulary_size,
        d_feature=features.shape[-1],
        encoder=encoder,
        decoder=decoder,
        encoder_reduction=encoder_reduction,
        decoder_reduction=decoder_reduction,
        d_model=d_model,
        d_ff=_d_ff(parameters),
        num_heads=num_heads,
        num_encoder_layers=layers("encoder"),
        num_decoder_layers=layers("decoder"),
        max_length=len(parameters["positions.weight"]),
        dropout=0.0,
        start_id=0,
        end_id=1,
        pad_id=0,
    )
    module = partial(Captioner, configuration)
    return call(module, parameters, features[None], tokens[None])[0]


def sentence_log_probability(log_probs: Tensor, words: Tensor) -> Tensor:
    """``torch_impl.training.objectives.cross_entropy``, its sum and with the other sign."""
    return -objectives.cross_entropy(log_probs, words, pad_id=-1) * len(words)


def negative_log_likelihood(log_probs: Tensor, words: Tensor) -> Tensor:
    """``torch_impl.training.objectives.cross_entropy``, its sum."""
    return objectives.cross_entropy(log_probs, words[1:], pad_id=-1) * len(log_probs)


def _coco(captions: list[list[str]]) -> dict[int, list[str]]:
    return {i: [" ".join(words)] for i, words in enumerate(captions)}


def _published(scorer: Any, candidates: Any, references: Any) -> tuple[Any, Any]:
    joined = {i: [" ".join(words) for words in of] for i, of in enumerate(references)}
    result: tuple[Any, Any] = scorer(joined, _coco(candidates))
    return result


def cider_d(candidates: list[list[str]], references: list[list[list[str]]]) -> Any:
    """The published scorer, ``pycocoevalcap``."""
    return _published(Cider().compute_score, candidates, references)[1]


def bleu(candidates: list[list[str]], references: list[list[list[str]]]) -> Any:
    """The published scorer, ``pycocoevalcap``."""
    return _published(partial(Bleu(4).compute_score, verbose=0), candidates, references)[0]


def rouge_l(candidates: list[list[str]], references: list[list[list[str]]]) -> Any:
    """The published scorer, ``pycocoevalcap``."""
    return _published(Rouge().compute_score, candidates, references)[1]


def self_bleu(captions: list[list[str]]) -> Any:
    """The published scorer, ``pycocoevalcap``, of each caption against the others."""
    each = [bleu([one], [[*captions[:i], *captions[i + 1 :]]]) for i, one in enumerate(captions)]
    return np.mean(each, axis=0)


def cider_d_reward(
    candidates: list[list[str]], images: list[int], corpus: list[list[list[str]]], *, device: str
) -> Tensor:
    """``torch_impl.cider.CiderD``."""
    ids: dict[str, int] = {}

    def tokens(caption: list[str]) -> list[int]:
        return [ids.setdefault(word, len(ids)) for word in caption]

    scorer = CiderD([[tokens(caption) for caption in of] for of in corpus]).to(device)
    rows = padded([tokens(caption) for caption in candidates]).to(device)
    return scorer(rows, torch.tensor(images, device=device))


@dataclass(frozen=True)
class Own:
    """An implementation of this project's: of an operator, by name, as a candidate's function."""

    operator: str
    implementation: str
    function: Callable[..., Any]
    framework: str = "torch"
    share: int = 1
    """One case in so many is enough: Triton's interpreter is slow."""

    @property
    def name(self) -> str:
        """The function as Python source, for a test."""
        if isinstance(self.function, Within):
            of, within = replace(self, function=self.function.function), self.function.within
            return f"own.Within({of.name}, own.{within.__name__})"
        function = self.function
        if isinstance(function, partial):
            given = "".join(f", {name}={value!r}" for name, value in function.keywords.items())
            return f"partial(own.{function.func.__name__}{given})"
        where = "objectives" if function.__module__ == objectives.__name__ else "own"
        return f"{where}.{function.__name__}"

    @property
    def in_parts(self) -> bool:
        """Whether its chunks and tiles are lowered."""
        return isinstance(self.function, Within)

    def in_small_parts(self) -> Own:
        """The same with its chunks and tiles lowered."""
        function = Within(self.function, small_parts)
        return replace(self, implementation=f"{self.implementation}, parts", function=function)


EXPANSIONS = {f.__name__: f for f in (static_expansion, dynamic_expansion)}


def of_expansion(operator: str, implementation: str) -> Own:
    """An implementation of an expansion."""
    function = partial(EXPANSIONS[operator], implementation=implementation)
    return Own(operator, implementation, function)


def interpreted_kernels() -> list[Own]:
    """The fused expansions on Triton's interpreter, in small parts; none without Triton."""
    if importlib.util.find_spec("triton") is None:
        return []
    return [replace(of_expansion(name, "fused"), share=5).in_small_parts() for name in EXPANSIONS]


def implementations(device: str = "cpu") -> list[Own]:
    """Everything that this project has and the device can run; in small parts what has parts."""
    found = []
    for operator in EXPANSIONS:
        factored = of_expansion(operator, "factored")
        found += [of_expansion(operator, "literal"), factored, factored.in_small_parts()]
        if device.startswith("cuda") and torch.version.cuda and importlib.util.find_spec("triton"):
            found.append(of_expansion(operator, "fused"))
    modules = (
        multi_head_attention,
        attention_on_attention,
        layer_norm,
        feed_forward,
        encoder_layer,
        decoder_layer,
        captioner,
        lstm_cell,
        read_only_lstm_cell,
        read_only_captioner,
        reconstruction_loss,
        arnet_joint_loss,
        mean_centroid_distance,
        point_wise_distance,
        general_attention,
        middle_out_captioner,
        middle_out_loss,
        middle_out_step,
        mse,
        symmetric_mse,
        symmetric_sequence,
        gradient_descent,
        clip_gradients,
        radam,
        hyperbolic_warmup,
        linear_warmup,
        sentence_log_probability,
        negative_log_likelihood,
        objectives.cross_entropy,
        objectives.self_critical,
    )
    found += [Own(function.__name__, "torch", function) for function in modules]
    for function in (lstm, attentive_lstm, zoneout, recurrent_dropout, read_only_lstm):
        literal, scan = (
            Own(function.__name__, name, partial(function, implementation=name))
            for name in ("literal", "scan")
        )
        found += [literal, scan, scan.in_small_parts()]
    found.append(Own("lstm", "library", library_lstm))
    searches = (
        greedy,
        sample,
        scheduled_sampling,
        beam_search,
        grid_beam_search,
        middle_out_beam_search,
        cider_d_reward,
    )
    found += [Own(f.__name__, "torch", partial(f, device=device)) for f in searches]
    scorers = (cider_d, bleu, rouge_l, self_bleu)
    return found + [Own(scorer.__name__, "pycocoevalcap", scorer, "numpy") for scorer in scorers]
