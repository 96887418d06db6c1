"""Weights under the names of the authors' files, written out, and what loads them."""

import math
from dataclasses import dataclass

import torch
from hypothesis import strategies as st

from benchmarks.verify import strategies
from benchmarks.verify.strategies import fill
from tests.support.parity import Array
from torch_impl.checkpoints.checkpoint import load_released
from torch_impl.layers.swin import SwinConfiguration, SwinTransformer

IDS = {"start_id": 2, "end_id": 1, "pad_id": 0}


@dataclass(frozen=True)
class Released:
    """A state dictionary under the authors' names, in float64, and what its tensors do not tell."""

    weights: dict[str, Array]
    groups: tuple[int, ...]
    num_heads: int

    @property
    def tensors(self):
        return {name: torch.from_numpy(x.copy()) for name, x in self.weights.items()}

    def load(self, source=None, **changes):
        """``load_released`` of these weights, or of ``source``."""
        options = {"groups": self.groups, "num_heads": self.num_heads, **IDS, **changes}
        return load_released(self.tensors if source is None else source, **options)

    @property
    def d_feature(self):
        return self.weights["input_linear.weight"].shape[1]


def released(
    generator,
    *,
    d_model=4,
    num_heads=2,
    d_ff=6,
    d_feature=5,
    vocabulary=7,
    groups=(2, 1),
    num_expansions=2,
    layers=(1, 1),
    positions=8,
    pos_encoder="pos_encoder.weight",
):
    """Random weights under the names of the authors' files."""
    shapes = {"out_embedder.embed.weight": (vocabulary, d_model), pos_encoder: (positions, d_model)}

    def add(name, *shape):
        shapes[f"{name}.weight"], shapes[f"{name}.bias"] = shape, shape[:1]

    add("input_linear", d_model, d_feature)
    add("vocab_linear", vocabulary, d_model)
    for half, count in zip(("enc", "dec"), layers, strict=True):
        add(f"{half}_reduce_group", d_model, count * d_model)
        add(f"{half}_reduce_norm", d_model)
    for stack, count in zip(("encoders", "decoders"), layers, strict=True):
        for i in range(count):
            layer, static = f"{stack}.{i}", stack == "encoders"
            mixer = f"{layer}.stc_exp" if static else f"{layer}.dyn_exp"
            vectors = (sum(groups) if static else num_expansions, d_model)
            shapes[f"{mixer}.query_exp_vectors.weight"] = vectors
            shapes[f"{mixer}.bias_exp_vectors.weight"] = vectors
            parts = ["class_a_embed", "class_b_embed", "selector_embed"]
            parts += ["key_embed"] if static else ["key_linear", "cond_embed"]
            for part in parts:
                add(f"{mixer}.{part}", d_model, d_model)
            if not static:
                for part in ("Wq", "Wk", "Wv", "out_linear"):
                    add(f"{layer}.mha.{part}", d_model, d_model)
            add(f"{layer}.ff.linear_1", d_ff, d_model)
            add(f"{layer}.ff.linear_2", d_model, d_ff)
            for norm in ("norm_1", "norm_2") if static else ("norm_1", "norm_2", "norm_3"):
                add(f"{layer}.{norm}", d_model)
    weights = {n: fill(generator, shape) / math.sqrt(shape[-1]) for n, shape in shapes.items()}
    return Released(weights, groups, num_heads)


@st.composite
def sizes(draw):
    """No two widths are equal, so that a transposed matrix is not the matrix."""
    num_heads = draw(st.integers(1, 2))
    d_model = num_heads * draw(st.integers(4 // num_heads, 3 + 3 // num_heads))
    return {
        "num_heads": num_heads,
        "d_model": d_model,
        "d_ff": d_model + draw(st.integers(1, 3)),
        "d_feature": d_model + draw(st.integers(1, 3)),
        "vocabulary": d_model + draw(st.integers(1, 3)),
        "groups": draw(strategies.groups(3, 3).filter(lambda groups: sum(groups) != d_model)),
        "num_expansions": draw(st.integers(1, 3)),
        "layers": (draw(st.integers(1, 3)), draw(st.integers(1, 3))),
        "positions": d_model + draw(st.integers(1, 3)),
        "pos_encoder": draw(st.sampled_from(("pos_encoder.weight", "pos_encoder.embed.weight"))),
    }


def cases():
    return st.builds(lambda fields, g: released(g, **fields), sizes(), strategies.generators())


def inputs(case, generator):
    """Features (2, 3, d_feature) and words (2, 5)."""
    features = generator.standard_normal((2, 3, case.d_feature))
    return features, generator.integers(0, len(case.weights["vocab_linear.bias"]), (2, 5))


def end_to_end(generator, **changes):
    """A captioner's weights and a backbone's under one roof, and that backbone."""
    fields = {
        "image_size": 16,
        "patch_size": 2,
        "embed_dim": 4,
        "depths": (2, 3),
        "num_heads": (2, 1),
        "window_size": 2,
        "mlp_ratio": 2,
    }
    backbone = SwinTransformer(SwinConfiguration(**(fields | changes))).double().eval()
    for parameter in backbone.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    case = released(generator, d_feature=backbone.d_feature)
    state = {f"swin_transf.{n}": x.numpy() for n, x in backbone.state_dict().items()}
    return Released({**case.weights, **state}, case.groups, case.num_heads), backbone
