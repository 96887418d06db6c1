"""The authors' released checkpoints of ExpansionNet v1 and v2, under our names.

A file is a dictionary whose ``model_state_dict`` has the captioner's 158 tensors (of 3 + 3 layers)
and, end to end, the backbone's 362 under ``swin_transf.``. Sizes are read from the tensors.
"""

from __future__ import annotations

import itertools
import math
import pickle
import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from torch_impl.common.weights import CheckpointError, raise_if_any, state_dict_problems
from torch_impl.expansion.functional import coefficients
from torch_impl.layers.swin import SwinConfiguration, SwinTransformer
from torch_impl.models import ExpansionNet
from torch_impl.models.end_to_end import EndToEnd

BACKBONE = "swin_transf."


class Weight(NamedTuple):
    """The authors' name of a tensor, ours, and its shape as names of sizes."""

    theirs: str
    ours: str
    shape: tuple[str, ...]


def load_released(
    path_or_state_dict: str | Path | Mapping[str, Any],
    *,
    groups: Sequence[int],
    num_heads: int,
    start_id: int = 79,
    end_id: int = 77,
    pad_id: int = 78,
) -> ExpansionNet | EndToEnd:
    """The model of a released checkpoint, in evaluation mode; an ``EndToEnd`` if it has a backbone.

    No code in the file is executed, and nothing is loaded unless every key is known and fits. The
    tensors are copied, and keep their dtype.

    Args:
        path_or_state_dict: a file, a dictionary with ``model_state_dict``, or that dictionary.
        groups: the static expansion coefficients, which cannot be read from the tensors: v2's
            (32, 64, 128, 256, 512), v1's (64,).
        num_heads: of the cross-attention: the papers' 8.
        start_id, end_id, pad_id: by default those of the authors' vocabulary of 10,000 words.

    Raises:
        CheckpointError: the file is not PyTorch's, damaged, or contains code; or the tensors do not
            fit: every missing, extra and misshapen key is listed.
        ValueError: groups do not add up to the static expansion vectors, num_heads does not divide
            d_model, or an id is outside the vocabulary.
    """
    groups = coefficients(groups)
    if isinstance(path_or_state_dict, Mapping):
        where, content = "the state dictionary", path_or_state_dict
    else:
        where = str(path_or_state_dict)
        content = _read(Path(path_or_state_dict))
    weights, problems = _tensors(content, where)
    backbone = {
        name.removeprefix(BACKBONE): tensor
        for name, tensor in weights.items()
        if name.startswith(BACKBONE)
    }
    rest = {name: t for name, t in weights.items() if not name.startswith(BACKBONE)}

    encoder_layers, decoder_layers = _count(rest, "encoders"), _count(rest, "decoders")
    table = _captioner(encoder_layers, decoder_layers, rest)
    sizes = _sizes(table, rest, encoder_layers, decoder_layers)
    expected = {w.theirs: tuple(sizes.get(name, name) for name in w.shape) for w in table}
    problems += state_dict_problems(expected, rest)
    swin = _swin(backbone, where) if backbone else None
    if swin is not None:
        shapes = {BACKBONE + name: tuple(t.shape) for name, t in swin.state_dict().items()}
        problems += state_dict_problems(
            shapes, {BACKBONE + name: t for name, t in backbone.items()}
        )
    raise_if_any(problems or _unusable(weights), where)

    if sum(groups) != sizes["static vectors"]:
        raise ValueError(
            f"groups {groups} add up to {sum(groups)}, "
            f"but {where} has {sizes['static vectors']} static expansion vectors"
        )
    # without storage and initialisation: the weights are assigned below
    with torch.device("meta"):
        model = ExpansionNet(
            groups=groups,
            num_expansions=sizes["num_expansions"],
            vocabulary_size=sizes["vocabulary_size"],
            d_feature=sizes["d_feature"],
            d_model=sizes["d_model"],
            d_ff=sizes["d_ff"],
            num_heads=num_heads,
            num_encoder_layers=encoder_layers,
            num_decoder_layers=decoder_layers,
            max_length=sizes["max_length"],
            start_id=start_id,
            end_id=end_id,
            pad_id=pad_id,
        )
    _fill(model, {weight.ours: rest[weight.theirs] for weight in table})
    if swin is None:
        return model.eval()
    _fill(swin, backbone)
    return EndToEnd(swin, model).eval()


def load_swin(path: Path) -> SwinTransformer:
    """The backbone with Swin's published weights, without its classifier, in evaluation mode.

    Sizes are read from the tensors. No code in the file is executed, and nothing is loaded unless
    every key is known and fits.

    Args:
        path: the file, a dictionary of tensors or one with such a dictionary as its ``model``.

    Raises:
        CheckpointError: as ``load_released``.
    """
    where, content = str(path), _read(Path(path))
    if isinstance(content, Mapping):
        content = content.get("model", content)
    weights, problems = _tensors(content, where)
    weights = {name: t for name, t in weights.items() if not name.startswith("head.")}
    swin = _swin(weights, where)
    shapes = {name: tuple(tensor.shape) for name, tensor in swin.state_dict().items()}
    problems += state_dict_problems(shapes, weights)
    raise_if_any(problems or _unusable(weights), where)
    _fill(swin, weights)
    return swin.eval()


def _read(path: Path) -> Any:
    """The contents of a file by ``torch.save``, of tensors and plain values only."""
    if not path.is_file():
        what = "a folder" if path.is_dir() else "no such file"
        raise CheckpointError(f"{path}: {what}, expected a released checkpoint")
    try:
        with warnings.catch_warnings():
            # PyTorch warns of other pickle protocols, and then reads or refuses them anyway
            warnings.simplefilter("ignore")
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        code = re.search(r"GLOBAL (\S+)", str(error))
        what = f"has code in it ({code[1]})" if code else "is no file of tensors and plain values"
        raise CheckpointError(f"{path}: {what}: refused, nothing was executed") from error
    except Exception as error:  # a damaged pickle may raise anything
        raise CheckpointError(
            f"{path}: not a readable PyTorch file, truncated or damaged? ({type(error).__name__})"
        ) from error


def _tensors(content: Any, where: str) -> tuple[dict[str, Tensor], list[str]]:
    """The state dictionary's tensors, and a problem for every other value."""
    if isinstance(content, Mapping):
        content = content.get("model_state_dict", content)
    if not isinstance(content, Mapping):
        raise CheckpointError(
            f"{where}: holds a {type(content).__name__}, "
            "expected a dictionary of tensors, or one of those as its model_state_dict"
        )
    tensors = {str(name): value for name, value in content.items() if isinstance(value, Tensor)}
    problems = [
        f"{name} is a {type(value).__name__}, expected a tensor"
        for name, value in content.items()
        if not isinstance(value, Tensor)
    ]
    return tensors, problems


def _captioner(
    encoder_layers: int, decoder_layers: int, weights: Mapping[str, Tensor]
) -> list[Weight]:
    """Every tensor of the captioner. "class a" is the stream +M, "class b" the stream -M."""
    table = [
        Weight("out_embedder.embed.weight", "embedding.weight", ("vocabulary_size", "d_model"))
    ]
    table += _linear("input_linear", "input", "d_model", "d_feature")
    table += _linear("vocab_linear", "vocabulary", "vocabulary_size", "d_model")
    positions = ("pos_encoder.weight", "pos_encoder.embed.weight")
    theirs = next((name for name in positions if name in weights), positions[0])
    table.append(Weight(theirs, "positions.weight", ("max_length", "d_model")))
    for half in ("encoder", "decoder"):
        reduce = f"{half[:3]}_reduce"
        table += _linear(f"{reduce}_group", f"{half}.reduce", "d_model", f"{half} layers")
        table += _norm(f"{reduce}_norm", f"{half}.norm")
    for i in range(encoder_layers):
        theirs, ours = f"encoders.{i}", f"encoder.layers.{i}"
        names = {"key_embed": "key"}
        table += _expansion(f"{theirs}.stc_exp", f"{ours}.mixer", "static vectors", names)
        table += _feed_forward(theirs, ours)
        for norm in ("norm_1", "norm_2"):
            table += _norm(f"{theirs}.{norm}", f"{ours}.{norm}")
    for i in range(decoder_layers):
        theirs, ours = f"decoders.{i}", f"decoder.layers.{i}"
        names = {"key_linear": "key", "cond_embed": "condition"}
        table += _expansion(f"{theirs}.dyn_exp", f"{ours}.mixer", "num_expansions", names)
        heads = {"Wq": "query", "Wk": "key", "Wv": "value", "out_linear": "out"}
        for their_name, our_name in heads.items():
            table += _linear(f"{theirs}.mha.{their_name}", f"{ours}.cross_attention.{our_name}")
        table += _feed_forward(theirs, ours)
        for norm in ("norm_1", "norm_2", "norm_3"):
            table += _norm(f"{theirs}.{norm}", f"{ours}.{norm}")
    return table


def _expansion(
    theirs: str, ours: str, vectors: str, own_names: Mapping[str, str]
) -> Iterable[Weight]:
    shape = (vectors, "d_model")
    yield Weight(f"{theirs}.query_exp_vectors.weight", f"{ours}.query_vectors", shape)
    yield Weight(f"{theirs}.bias_exp_vectors.weight", f"{ours}.bias_vectors", shape)
    shared = {"class_a_embed": "value_1", "class_b_embed": "value_2", "selector_embed": "selector"}
    for their_name, our_name in (shared | dict(own_names)).items():
        yield from _linear(f"{theirs}.{their_name}", f"{ours}.{our_name}")


def _feed_forward(theirs: str, ours: str) -> Iterable[Weight]:
    yield from _linear(f"{theirs}.ff.linear_1", f"{ours}.feed_forward.linear_1", "d_ff", "d_model")
    yield from _linear(f"{theirs}.ff.linear_2", f"{ours}.feed_forward.linear_2", "d_model", "d_ff")


def _linear(
    theirs: str, ours: str, out_features: str = "d_model", in_features: str = "d_model"
) -> Iterable[Weight]:
    yield Weight(f"{theirs}.weight", f"{ours}.weight", (out_features, in_features))
    yield Weight(f"{theirs}.bias", f"{ours}.bias", (out_features,))


def _norm(theirs: str, ours: str) -> Iterable[Weight]:
    yield Weight(f"{theirs}.weight", f"{ours}.weight", ("d_model",))
    yield Weight(f"{theirs}.bias", f"{ours}.bias", ("d_model",))


def _count(weights: Mapping[str, Tensor], stack: str) -> int:
    """The number of layers of a stack, at least 1: the highest index with a known part, plus 1."""
    layer = re.compile(rf"{stack}\.(\d{{1,3}})\.(?:stc_exp|dyn_exp|mha|ff|norm_[123])\.")
    return max((int(match[1]) + 1 for match in map(layer.match, weights) if match), default=1)


def _sizes(
    table: Sequence[Weight],
    weights: Mapping[str, Tensor],
    encoder_layers: int,
    decoder_layers: int,
) -> dict[str, int]:
    """The sizes by name: a majority vote of the tensors that do not contradict d_model.

    A size is missing where no such tensor has it, or the vote is a tie.
    """
    sizes: dict[str, int] = {}
    names = ("d_model", "d_ff", "d_feature", "vocabulary_size", "max_length")
    for name in (*names, "num_expansions", "static vectors"):
        votes: Counter[int] = Counter()
        for weight in table:
            shape = weights[weight.theirs].shape if weight.theirs in weights else ()
            if len(shape) == len(weight.shape):
                axes = dict(zip(weight.shape, shape, strict=True))
                if name in axes and all(sizes.get(n, axes[n]) == axes[n] for n in axes):
                    votes[axes[name]] += 1
        first, *others = votes.most_common(2) or [(0, 0)]
        if first[1] and not (others and others[0][1] == first[1]):
            sizes[name] = first[0]
        if name == "d_model" and name in sizes:
            sizes["encoder layers"] = encoder_layers * sizes[name]
            sizes["decoder layers"] = decoder_layers * sizes[name]
    return sizes


def _swin(weights: Mapping[str, Tensor], where: str) -> SwinTransformer:
    """The backbone whose sizes win a majority vote of the tensors, without storage."""
    pattern = re.compile(
        r"layers\.(\d{1,3})\.blocks\.(\d{1,3})\.((?:norm[12]|attn|mlp)\..+|attn_mask)"
    )
    blocks = [
        (int(match[1]), int(match[2]), match[3], tuple(tensor.shape))
        for name, tensor in weights.items()
        if (match := pattern.fullmatch(name))
    ]
    depths: Counter[int] = Counter()
    votes: defaultdict[Any, Counter[int]] = defaultdict(Counter)

    def winner(size: Any, default: int = 1) -> int:
        ((value, _),) = votes[size].most_common(1) or [(default, 0)]
        return value

    for i, j, part, shape in blocks:
        depths[i] = max(depths[i], j + 1)
        match part, shape:
            case "attn.relative_position_bias_table", (rows, _):
                votes["window", i][(math.isqrt(rows) + 1) // 2] += 1
            case "attn.relative_position_index", (tokens, _):
                votes["window", i][math.isqrt(tokens)] += 1
            case "norm1.weight", (dim,):
                votes["embed_dim"][dim // 2**i] += 1
    # tensors that contradict the window sizes have no further vote
    for i, _, part, shape in blocks:
        window = winner(("window", i))
        match part, shape:
            case "attn.relative_position_bias_table", (rows, heads):
                if rows == (2 * window - 1) ** 2:
                    votes["heads", i][heads] += 1
            case "attn_mask", (count, tokens, same):
                n = math.isqrt(count)
                if n * n == count and tokens == same == window**2:
                    votes["grid"][n * window * 2**i] += 1
            case "mlp.fc1.weight", (hidden, dim):
                if dim and hidden % dim == 0:
                    votes["mlp_ratio"][hidden // dim] += 1
    # after a missing stage all blocks count as extra; the stage itself is not reported
    stages = range(max(next(i for i in itertools.count() if i not in depths), 1))
    patches = weights.get("patch_embed.proj.weight", torch.empty(1, 3, 4, 4, device="meta"))
    try:
        channels, patch_size = patches.shape[1], patches.shape[-1]
        configuration = SwinConfiguration(
            # without attention masks the image is one window
            image_size=winner("grid", winner(("window", 0))) * patch_size,
            patch_size=patch_size,
            in_channels=channels,
            embed_dim=winner("embed_dim"),
            depths=tuple(max(depths[i], 1) for i in stages),
            num_heads=tuple(winner(("heads", i)) for i in stages),
            window_size=winner(("window", 0)),
            mlp_ratio=winner("mlp_ratio"),
        )
        with torch.device("meta"):
            return SwinTransformer(configuration)
    except (IndexError, ValueError) as error:
        raise CheckpointError(f"{where}: {BACKBONE}* are no Swin Transformer: {error}") from error


def _unusable(weights: Mapping[str, Tensor]) -> list[str]:
    """Tensors of another dtype than most, with non-finite values or an index out of range."""
    index = "attn.relative_position_index"
    dtypes = Counter(tensor.dtype for tensor in weights.values() if tensor.is_floating_point())
    ((dtype, _),) = dtypes.most_common(1) or [(torch.float32, 0)]
    problems = []
    for name, tensor in weights.items():
        expected = torch.int64 if name.endswith(index) else dtype
        if tensor.dtype != expected:
            problems.append(f"{name} is {tensor.dtype}, expected {expected}")
        elif name.endswith(index):
            rows = (2 * math.isqrt(len(tensor)) - 1) ** 2
            if bool(((tensor < 0) | (tensor >= rows)).any()):
                problems.append(f"{name} points beyond the {rows} rows of its table")
        elif not bool(tensor.isfinite().all()):
            problems.append(f"{name} has values that are not finite")
    return problems


def _fill(module: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Assign copies of ``weights`` to a module on the meta device."""
    contiguous = torch.contiguous_format
    copies = {name: t.detach().clone(memory_format=contiguous) for name, t in weights.items()}
    module.load_state_dict(copies, assign=True)
