"""The Swin Transformer against what its paper says, written out token by token."""

import copy
import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.verify import strategies
from benchmarks.verify.strategies import fill
from benchmarks.verify.tolerances import UNITS, assert_close, error, literal_bound, scale
from reference.primitives import layer_norm, linear, select, softmax
from tests.support.covers import covers
from tests.support.parity import assert_gradients, gradients, numpy, tensor
from tests.support.precision import Errors, in_precision, nudge
from torch_impl.layers import swin
from torch_impl.layers.swin import SwinConfiguration, SwinTransformer
from torch_impl.models import vision


@st.composite
def configurations(draw):
    """Small ones of one or two stages, with one window or more, or a last grid below the window."""
    stages, window = draw(st.integers(1, 2)), draw(st.sampled_from((2, 3, 4)))
    grid = window * draw(st.integers(1, 2)) * 2 ** (stages - 1)
    if window == 4 and draw(st.booleans()):
        grid = window
    patch, heads = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    return SwinConfiguration(
        image_size=grid * patch,
        patch_size=patch,
        in_channels=draw(st.integers(1, 3)),
        embed_dim=heads * draw(st.integers(1, 3)),
        depths=tuple(draw(st.integers(1, 3)) for _ in range(stages)),
        num_heads=tuple(draw(st.sampled_from((1, heads))) for _ in range(stages)),
        window_size=window,
        mlp_ratio=draw(st.integers(1, 3)),
    )


def filled(model, generator):
    """Normal parameters in float64; they are returned with the buffers as they are."""
    model.double().eval()
    parameters = {
        name: fill(generator, value.shape) / math.sqrt(value[0].numel())
        for name, value in model.named_parameters()
    }
    model.load_state_dict({n: torch.from_numpy(x) for n, x in parameters.items()}, strict=False)
    return parameters


def images_of(c, batch, generator):
    return generator.standard_normal((batch, c.in_channels, c.image_size, c.image_size))


# the paper, one image at a time


def literal(image, parameters, c):
    """An image (C, H, W) to its features (L, d), every token spelt out."""
    p, grid = c.patch_size, c.image_size // c.patch_size
    kernel = parameters["patch_embed.proj.weight"].reshape(c.embed_dim, -1)
    embed = {"weight": kernel, "bias": parameters["patch_embed.proj.bias"]}
    tokens = {
        (y, x): linear(image[:, y * p : (y + 1) * p, x * p : (x + 1) * p].ravel(), embed)
        for y, x in itertools.product(range(grid), repeat=2)
    }
    X = np.stack(list(tokens.values()))
    X = layer_norm(X, select(parameters, "patch_embed.norm."))
    for i, depth in enumerate(c.depths):
        stage = select(parameters, f"layers.{i}.")
        window = min(c.window_size, grid)
        for j in range(depth):
            shift = window // 2 if j % 2 and grid > window else 0
            block = select(stage, f"blocks.{j}.")
            X = literal_block(X, block, grid, window, shift, c.num_heads[i])
        if i + 1 < len(c.depths):
            places = [y * grid + x for y in range(0, grid, 2) for x in range(0, grid, 2)]
            merged = [X[[k, k + grid, k + 1, k + grid + 1]].ravel() for k in places]
            normed = layer_norm(np.stack(merged), select(stage, "downsample.norm."))
            X, grid = normed @ stage["downsample.reduction.weight"].T, grid // 2
    return layer_norm(X, select(parameters, "norm."))


def literal_block(X, parameters, grid, window, shift, num_heads):
    normed = layer_norm(X, select(parameters, "norm1."))
    X = X + literal_attention(normed, select(parameters, "attn."), grid, window, shift, num_heads)
    hidden = linear(layer_norm(X, select(parameters, "norm2.")), select(parameters, "mlp.fc1."))
    erf = np.vectorize(math.erf)(hidden.astype(np.float64) / math.sqrt(2)).astype(hidden.dtype)
    gelu = hidden * (1 + erf) / 2
    return X + linear(gelu, select(parameters, "mlp.fc2."))


def literal_attention(X, parameters, grid, window, shift, num_heads):
    """Every token of the grid attends to those in its window that are near it in the image."""
    place = np.stack(np.divmod(np.arange(grid * grid), grid), axis=1)
    displaced = place[:, None] - place
    its_window = ((place - shift) % grid) // window
    together = (its_window[:, None] == its_window).all(-1)
    visible = together & (np.abs(displaced) < window).all(-1)

    table = parameters["relative_position_bias_table"].reshape(2 * window - 1, -1, num_heads)
    near = np.where(visible[..., None], displaced, 0) + window - 1
    bias = table[near[..., 0], near[..., 1]]
    QKV = np.split(linear(X, select(parameters, "qkv.")), 3, axis=1)
    heads = []
    for h, (Q, K, V) in enumerate(zip(*(np.split(A, num_heads, 1) for A in QKV), strict=True)):
        logits = Q @ K.T / math.sqrt(K.shape[1]) + bias[..., h]
        heads.append(softmax(np.where(visible, logits, -np.inf)) @ V)
    return linear(np.concatenate(heads, axis=1), select(parameters, "proj."))


@covers(expansionnet_v2=[10])
@given(configurations(), strategies.generators())
def test_features_are_the_paper_s_token_by_token(c, generator):
    model = SwinTransformer(c)
    parameters = filled(model, generator)
    images = images_of(c, 2, generator)
    features = numpy(model(tensor(images)))
    assert features.shape == (2, model.num_features, model.d_feature)
    for image, found in zip(images, features, strict=True):
        assert_close(found, literal(image, parameters, c))
    assert model(tensor(images[:0])).shape == (0, *features.shape[1:])


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_lower_precision_is_as_good_as_the_literal_form(precision):
    errors, dtype = Errors(precision), getattr(torch, precision)

    @settings(max_examples=30)
    @given(configurations(), strategies.generators())
    def collect(c, generator):
        model = SwinTransformer(c)
        arrays = {**filled(model, generator), "images": images_of(c, 1, generator)}
        exact, low = in_precision(arrays, precision)
        nudged = ({n: nudge(x, precision, generator) for n, x in exact.items()} for _ in range(3))
        weights = {name: tensor(x) for name, x in exact.items() if name != "images"}
        model.load_state_dict(weights, strict=False)
        out = model.to(dtype)(tensor(exact["images"], dtype))[0]
        literally, exactly, *nearby = (literal(x["images"][0], x, c) for x in (low, exact, *nudged))
        errors.add(numpy(out), literally, exactly, nearby)

    collect()
    errors.check("features")


@given(st.sampled_from((2, 3, 4)), st.integers(2, 3), st.booleans(), strategies.generators())
def test_a_mask_is_attention_region_by_region(window, n, shifted, generator):
    """Tokens that a shifted window brings together from two edges of the image do not meet."""
    stage = swin.StageSizes(4, 2, 2, window * n, window)
    shift = stage.shift if shifted else 0
    block = swin.SwinBlock(stage, 2, shift)
    parameters = filled(block, generator)
    x = generator.standard_normal((1, stage.resolution, stage.resolution, 4))
    expected = literal_block(x.reshape(-1, 4), parameters, stage.resolution, window, shift, 2)
    assert_close(numpy(block(tensor(x))).reshape(-1, 4), expected)
    mask = swin.shift_mask(stage.resolution, window, stage.shift)
    assert set(mask.unique().tolist()) == {0.0, -100.0}


@settings(max_examples=10)
@given(configurations(), strategies.generators())
def test_gradients_are_the_paper_s_differences(c, generator):
    c = dataclasses.replace(c, patch_size=1, image_size=c.image_size // c.patch_size)
    model = SwinTransformer(c)
    parameters = filled(model, generator)
    images = images_of(c, 1, generator)
    x = tensor(images, grad=True)
    out = model(x)
    dO = generator.standard_normal(out.shape)
    torch.autograd.backward(out, tensor(dO))

    def loss(arrays):
        return float((dO[0] * literal(arrays["images"][0], arrays, c)).sum())

    found = {**gradients(model), "images": numpy(x.grad)}
    arrays = {**parameters, "images": images}
    assert_gradients(loss, arrays, found, generator, directions=2)


def published_names(depths, with_masks):
    """The published names, written out; the stages ``with_masks`` have shifted blocks."""
    both = [f"{name}.{part}" for name in ("norm1", "norm2") for part in ("weight", "bias")]
    linears = ("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2")
    both += [f"{name}.{part}" for name in linears for part in ("weight", "bias")]
    both += ["attn.relative_position_bias_table", "attn.relative_position_index"]
    names = {"norm.weight", "norm.bias"}
    names |= {f"patch_embed.{n}.{part}" for n in ("proj", "norm") for part in ("weight", "bias")}
    for i, depth in enumerate(depths):
        for j in range(depth):
            names |= {f"layers.{i}.blocks.{j}.{name}" for name in both}
            if j % 2 and i in with_masks:
                names.add(f"layers.{i}.blocks.{j}.attn_mask")
        if i + 1 < len(depths):
            names |= {f"layers.{i}.downsample.norm.{part}" for part in ("weight", "bias")}
            names.add(f"layers.{i}.downsample.reduction.weight")
    return names


def test_swin_l_has_the_published_tensors_and_parameters():
    """362 tensors; 195 million parameters, with a head of 1,000 classes 197 million; 103.9 GMAC.

    The last two are what Liu et al. print for Swin-L at 384 x 384 (Table 1).
    """
    with torch.device("meta"):
        model = SwinTransformer(SwinConfiguration())
    state = model.state_dict()
    assert set(state) == published_names((2, 2, 18, 2), with_masks=(0, 1, 2))
    assert len(state) == 362
    assert state["layers.0.blocks.1.attn_mask"].shape == (64, 144, 144)
    assert state["layers.2.blocks.17.attn_mask"].shape == (4, 144, 144)
    count = 48 * 192 + 192 + 2 * 192
    for i, (depth, heads) in enumerate(zip((2, 2, 18, 2), (6, 12, 24, 48), strict=True)):
        d = 192 * 2**i
        attention, mlp = 4 * d * d + 4 * d + 23 * 23 * heads, 8 * d * d + 5 * d
        count += depth * (attention + mlp + 4 * d)
        count += 8 * d * d + 8 * d if i < 3 else 2 * d
    assert sum(p.numel() for p in model.parameters()) == count == 195_198_516
    assert round((count + 1536 * 1000 + 1000) / 1e6) == 197
    with FlopCounterMode(display=False) as counter:
        features = model(torch.empty(1, 3, 384, 384, device="meta"))
    assert features.shape == (1, 144, 1536)
    assert round(counter.get_total_flops() / 2e9, 1) == 103.9


@given(configurations())
def test_names_are_the_published_ones_at_any_size(c):
    grids = [c.image_size // c.patch_size // 2**i for i in range(len(c.depths))]
    shifted = tuple(i for i, grid in enumerate(grids) if grid > c.window_size)
    assert set(SwinTransformer(c).state_dict()) == published_names(c.depths, shifted)


def test_it_compiles_whole_and_is_exported_for_any_batch():
    model = SwinTransformer(SwinConfiguration(8, 2, 3, 4, (2,), (2,), 2)).eval()
    images = torch.randn(2, 3, 8, 8)
    any_batch = {"images": {0: torch.export.Dim.DYNAMIC}}
    with torch.no_grad():
        features = model(images)
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
        exported = torch.export.export(model, (images,), dynamic_shapes=any_batch).module()
        assert torch.equal(compiled(images), features)
        assert torch.equal(exported(images.repeat(2, 1, 1, 1)), features.repeat(2, 1, 1))


@given(st.integers(0, 2**32 - 1), st.sampled_from([torch.float64, torch.float32]))
def test_photographs_are_normalised_by_imagenet_s_mean_and_deviation(seed, dtype):
    network = SwinTransformer(SwinConfiguration(8, 2, 3, 4, (2,), (2,), 2)).to(dtype)
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(256, (2, 8, 8, 3), generator=generator, dtype=torch.uint8)
    channels = ((0.485, 0.229), (0.456, 0.224), (0.406, 0.225))

    def literal_in(precision):
        scaled = pixels.numpy().astype(precision) / 255
        parts = [(scaled[..., c] - mean) / std for c, (mean, std) in enumerate(channels)]
        return np.stack(parts, axis=1)

    expected = literal_in(np.float64)
    normalised = vision.normalise(pixels)
    error_in_float32 = error(literal_in(np.float32), expected)
    bound = literal_bound(error_in_float32, UNITS["float32"] * scale(expected))
    assert error(numpy(normalised), expected) <= bound
    backbone = vision.Swin(network)
    features = backbone(pixels)
    with torch.inference_mode():
        assert torch.equal(features, network(normalised.to(dtype)))
    assert (backbone.image_size, backbone.d_feature) == (8, features.shape[-1])
    assert all(parameter.requires_grad for parameter in network.parameters())


def test_a_backbone_s_signature_is_of_its_weights():
    network = SwinTransformer(SwinConfiguration(8, 2, 3, 4, (2,), (2,), 2))
    backbone = vision.Swin(network)
    before = backbone.signature
    assert before == vision.Swin(copy.deepcopy(network)).signature
    assert "8 x 8 RGB" in before["preprocessing"]
    torch.nn.init.ones_(network.norm.bias)
    after = backbone.signature
    assert {name for name in before if before[name] != after[name]} == {"weights_sha256"}
    with pytest.raises(ValueError, match=r"expected \(B, 8, 8, 3\) torch.uint8"):
        backbone(torch.zeros(1, 3, 8, 8))


@pytest.mark.parametrize(
    "shape", [(1, 3, 8, 10), (1, 3, 10, 8), (1, 3, 16, 16), (1, 1, 8, 8), (3, 8, 8)]
)
def test_images_of_another_shape_are_refused(shape):
    model = SwinTransformer(SwinConfiguration(8, 2, 3, 4, (1,), (2,), 2))
    with pytest.raises(ValueError, match=r"expected \(B, 3, 8, 8\)"):
        model(torch.zeros(shape))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"image_size": 0}, "image_size must be at least 1"),
        ({"image_size": 9}, "image_size 9 is not divisible by patch_size 2"),
        ({"depths": (1, 1)}, r"depths \(1, 1\) and num_heads \(2,\): expected one of each a stage"),
        ({"depths": (), "num_heads": ()}, "expected one of each a stage"),
        ({"depths": (0,)}, "the depth of stage 0 must be at least 1"),
        ({"num_heads": (3,)}, "stage 0: width 4 is not divisible by 3 heads"),
        ({"num_heads": (0,)}, "num_heads of stage 0 must be at least 1"),
        ({"window_size": 3}, "a grid of 4 x 4 tokens cannot be cut into windows of 3"),
        (
            {"image_size": 6, "window_size": 3, "depths": (1, 1), "num_heads": (1, 1)},
            "stage 0: a grid of 3 x 3 tokens cannot be halved",
        ),
    ],
)
def test_sizes_that_do_not_fit_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SwinConfiguration(8, 2, 3, 4, (1,), (2,), 2), **changes)
