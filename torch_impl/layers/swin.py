"""The Swin Transformer (Liu et al., 2021, "Swin Transformer"): images to features, v2 equation 10.

Tokens are patches, in a grid. A block attends within windows of the grid, every other block within
windows shifted by half a window; between stages four neighbours become one token.

Modules have the names of the published weights. Swin-L at 384 x 384 has 362 tensors without a head:
24 blocks of 14, 4 of the patch embedding, 3 for each of 3 downsamplings, 2 of the last norm, and 11
attention masks (12 blocks are shifted, but the last stage has one window, which is not).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_impl.common.checks import positive
from torch_impl.layers.attention import bias_of_keys

HIDDEN = -100.0
"""Added to the logit of a masked key in the published weights."""


@dataclass(frozen=True)
class StageSizes:
    """The blocks between two downsamplings: a grid of resolution x resolution tokens of ``dim``."""

    dim: int
    depth: int
    num_heads: int
    resolution: int
    window_size: int

    @property
    def shift(self) -> int:
        """The shift of every other block's windows, in tokens; 0 for a single window."""
        return 0 if self.window_size == self.resolution else self.window_size // 2


@dataclass(frozen=True)
class SwinConfiguration:
    """Sizes; the defaults are Swin-L with windows of 12 for 384 x 384 pixels.

    A grid smaller than the window is one window.

    Raises:
        ValueError: a size below 1, not one number of heads for each depth, heads that do not
            divide a stage's width, a grid that cannot be cut into windows or halved.
    """

    image_size: int = 384
    patch_size: int = 4
    in_channels: int = 3
    embed_dim: int = 192
    depths: tuple[int, ...] = (2, 2, 18, 2)
    num_heads: tuple[int, ...] = (6, 12, 24, 48)
    window_size: int = 12
    mlp_ratio: int = 4

    def __post_init__(self) -> None:
        # from JSON they are lists
        for name in ("depths", "num_heads"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        sizes = ("image_size", "patch_size", "in_channels", "embed_dim", "window_size", "mlp_ratio")
        for name in sizes:
            positive(getattr(self, name), name)
        if not self.depths or len(self.depths) != len(self.num_heads):
            raise ValueError(
                f"depths {self.depths} and num_heads {self.num_heads}: expected one of each a stage"
            )
        if self.image_size % self.patch_size:
            raise ValueError(
                f"image_size {self.image_size} is not divisible by patch_size {self.patch_size}"
            )
        for i, stage in enumerate(self.stages()):
            positive(stage.depth, f"the depth of stage {i}")
            if stage.dim % positive(stage.num_heads, f"num_heads of stage {i}"):
                raise ValueError(
                    f"stage {i}: width {stage.dim} is not divisible by {stage.num_heads} heads"
                )
            if stage.resolution % stage.window_size:
                raise ValueError(
                    f"stage {i}: a grid of {stage.resolution} x {stage.resolution} tokens cannot "
                    f"be cut into windows of {stage.window_size}"
                )
            if i + 1 < len(self.depths) and stage.resolution % 2:
                raise ValueError(
                    f"stage {i}: a grid of {stage.resolution} x {stage.resolution} tokens "
                    "cannot be halved"
                )

    def stages(self) -> list[StageSizes]:
        """Each stage's geometry: the width doubles and the grid halves."""
        grid = self.image_size // self.patch_size
        return [
            StageSizes(
                dim=self.embed_dim * 2**i,
                depth=depth,
                num_heads=heads,
                resolution=grid // 2**i,
                window_size=max(min(self.window_size, grid // 2**i), 1),
            )
            for i, (depth, heads) in enumerate(zip(self.depths, self.num_heads, strict=True))
        ]


def windows(grid: Tensor, size: int) -> Tensor:
    """Grids (B, H, W, C) to windows (B nW, size^2, C); windows and tokens row by row."""
    B, H, W, C = grid.shape
    tiles = grid.reshape(B, H // size, size, W // size, size, C)  # nW = H / size * W / size
    return tiles.transpose(2, 3).reshape(-1, size * size, C)


def from_windows(x: Tensor, resolution: int) -> Tensor:
    """The inverse of ``windows`` for square grids: (B nW, size^2, C) to (B, H, H, C)."""
    size = math.isqrt(x.shape[1])
    n = resolution // size
    tiles = x.reshape(-1, n, n, size, size, x.shape[-1])
    return tiles.transpose(2, 3).reshape(-1, resolution, resolution, x.shape[-1])


def relative_position_index(size: int) -> Tensor:
    """The bias table's row for tokens i and j of a window: (size^2, size^2) int64.

    (r + size - 1)(2 size - 1) + c + size - 1 for token i, r rows below and c columns right of j
    (Liu et al., section 3.2, "relative position bias").
    """
    token = torch.arange(size * size)
    row, column = token // size, token % size
    r, c = row[:, None] - row, column[:, None] - column
    return (r + size - 1) * (2 * size - 1) + c + size - 1


def shift_mask(resolution: int, size: int, shift: int) -> Tensor:
    """The attention mask of shifted windows: (nW, size^2, size^2), 0 or ``HIDDEN``.

    The grid was rolled up and to the left: its last ``shift`` rows and columns wrapped around.
    Tokens of a window attend to each other only if both wrapped or neither did, in rows and in
    columns (Liu et al., section 3.2, "efficient batch computation for shifted configuration").
    """
    came_round = (torch.arange(resolution) >= resolution - shift).long()
    region = windows((2 * came_round[:, None] + came_round)[None, :, :, None], size).squeeze(-1)
    hidden = region[:, :, None] != region[:, None]  # (nW, size^2, size^2)
    return torch.zeros(hidden.shape).masked_fill(hidden, HIDDEN)


class WindowAttention(nn.Module):
    """Multi-head attention among the tokens of a window, with a relative position bias."""

    relative_position_index: Tensor

    def __init__(self, dim: int, window_size: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        biases = (2 * window_size - 1) ** 2
        self.relative_position_bias_table = nn.Parameter(torch.zeros(biases, num_heads))
        self.register_buffer("relative_position_index", relative_position_index(window_size))
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """softmax(Q K^T / sqrt(d_k) + B + mask) V (Liu et al., equation 4).

        Args:
            x: (B nW, N, dim), the N tokens of each window.
            mask: (nW, N, N), added to the logits.

        Returns:
            (B nW, N, dim).
        """
        q, k, v = self.qkv.bias.chunk(3)
        heads = F.linear(x, self.qkv.weight, torch.cat([q, bias_of_keys(k), v]))
        heads = heads.unflatten(-1, (3, self.num_heads, -1))  # (B nW, N, 3, H, d_k)
        Q, K, V = heads.permute(2, 0, 3, 1, 4)  # (B nW, H, N, d_k)
        bias = self.relative_position_bias_table[self.relative_position_index].permute(2, 0, 1)
        if mask is not None:  # (H, N, N) and (nW, 1, N, N) to (B nW, H, N, N)
            bias = (bias + mask[:, None]).repeat(x.shape[0] // mask.shape[0], 1, 1, 1)
        out = F.scaled_dot_product_attention(Q, K, V, attn_mask=bias)  # (B nW, H, N, d_k)
        out = self.proj(out.transpose(1, 2).flatten(2))
        return out


class Mlp(nn.Module):
    """fc2(gelu(fc1(x)))."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.fc2(F.gelu(self.fc1(x)))
        return out


class SwinBlock(nn.Module):
    """x + attention(norm1(x)), then x + mlp(norm2(x)) (Liu et al., equation 3)."""

    attn_mask: Tensor | None

    def __init__(self, stage: StageSizes, mlp_ratio: int, shift: int) -> None:
        super().__init__()
        self.resolution, self.window_size, self.shift = stage.resolution, stage.window_size, shift
        self.norm1 = nn.LayerNorm(stage.dim)
        self.attn = WindowAttention(stage.dim, stage.window_size, stage.num_heads)
        self.norm2 = nn.LayerNorm(stage.dim)
        self.mlp = Mlp(stage.dim, mlp_ratio * stage.dim)
        mask = shift_mask(stage.resolution, stage.window_size, shift) if shift else None
        self.register_buffer("attn_mask", mask)

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, H, dim) to (B, H, H, dim)."""
        normed, shift = self.norm1(x), self.shift
        if shift:
            normed = normed.roll((-shift, -shift), (1, 2))
        mixed = self.attn(windows(normed, self.window_size), self.attn_mask)  # (B nW, size^2, dim)
        mixed = from_windows(mixed, self.resolution)  # (B, H, H, dim)
        if shift:
            mixed = mixed.roll((shift, shift), (1, 2))
        x = x + mixed
        return x + self.mlp(self.norm2(x))


class PatchMerging(nn.Module):
    """Four neighbours become one token: their channels concatenated, normalised, 4 dim to 2 dim.

    In the published weights a neighbour's row varies before its column.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4 * dim)
        self.reduction = nn.Linear(4 * dim, 2 * dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, W, dim) to (B, H / 2, W / 2, 2 dim)."""
        neighbours = [x[:, row::2, column::2] for column in (0, 1) for row in (0, 1)]
        out: Tensor = self.reduction(self.norm(torch.cat(neighbours, dim=-1)))
        return out


class SwinStage(nn.Module):
    """The blocks of a stage, every other one shifted, and the downsampling after all but the last.

    A stage of one window has no shifted block.
    """

    def __init__(self, stage: StageSizes, mlp_ratio: int, downsample: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            SwinBlock(stage, mlp_ratio, stage.shift if j % 2 else 0) for j in range(stage.depth)
        )
        self.downsample = PatchMerging(stage.dim) if downsample else None

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, H, dim) to (B, H / 2, H / 2, 2 dim), or (B, H, H, dim) in the last stage."""
        for block in self.blocks:
            x = block(x)
        return x if self.downsample is None else self.downsample(x)


class PatchEmbed(nn.Module):
    """Patches of pixels to tokens: a linear map, then a norm."""

    def __init__(self, in_channels: int, patch_size: int, dim: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(in_channels, dim, patch_size, stride=patch_size)
        self.norm = nn.LayerNorm(dim)

    def forward(self, images: Tensor) -> Tensor:
        """(B, C, H, W) to (B, H / patch, W / patch, dim)."""
        out: Tensor = self.norm(self.proj(images).permute(0, 2, 3, 1))
        return out


class SwinTransformer(nn.Module):
    """The backbone of v2 (equation 10): (B, 3, 384, 384) to (B, 144, 1536) by default.

    The features are the last grid, row by row, after the last norm (without it v2's CIDEr-D is 2.6
    lower). No head, no absolute position embedding, no stochastic depth.

    Raises:
        ValueError: see ``SwinConfiguration``.
    """

    def __init__(self, configuration: SwinConfiguration) -> None:
        super().__init__()
        c = self.configuration = configuration
        stages = c.stages()
        self.patch_embed = PatchEmbed(c.in_channels, c.patch_size, c.embed_dim)
        self.layers = nn.ModuleList(
            SwinStage(stage, c.mlp_ratio, downsample=stage is not stages[-1]) for stage in stages
        )
        self.d_feature, self.num_features = stages[-1].dim, stages[-1].resolution ** 2
        self.norm = nn.LayerNorm(self.d_feature)

    def forward(self, images: Tensor) -> Tensor:
        """Features of images.

        Args:
            images: (B, in_channels, image_size, image_size), normalised as the weights expect.

        Returns:
            (B, num_features, d_feature).

        Raises:
            ValueError: another shape, as the attention masks are for one size.
        """
        c = self.configuration
        if images.dim() != 4 or images.shape[1:] != (c.in_channels, c.image_size, c.image_size):
            raise ValueError(
                f"images have shape {tuple(images.shape)}, "
                f"expected (B, {c.in_channels}, {c.image_size}, {c.image_size})"
            )
        x = self.patch_embed(images)
        for stage in self.layers:
            x = stage(x)
        features: Tensor = self.norm(x.flatten(1, 2))
        return features
