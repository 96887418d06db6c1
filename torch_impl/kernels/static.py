"""Static expansion as custom operators, forward and backward.

The package's documentation says what each program reads and writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from torch_impl.common.precision import at_least_float32
from torch_impl.kernels import launch
from torch_impl.kernels.launch import Launches, blocks, row_tiles
from torch_impl.kernels.support import direct, watched

SEQUENCES = 8
"""The fewest sequences that a program sums where a batch is summed in parts."""

PROGRAMS = 512
"""Target number of programs in a grid: a few per multiprocessor (A100: 108, H100: 132)."""


class StaticLaunches(Launches):
    """`Launches` of one static expansion, with its row tiles."""

    def __init__(
        self, query_vectors: Tensor, keys: Tensor, groups: Sequence[int], tf32: bool | None
    ) -> None:
        N = len(query_vectors)
        super().__init__(keys, tf32, max(groups), N=N, share=1 / len(groups))
        self.N, self.G, self.groups = N, len(groups), tuple(groups)

    def row_tiles(self, program: str) -> tuple[Tensor, Tensor, int]:
        """`launch.row_tiles` of a program, and their number T."""
        table, first = row_tiles(self.groups, self.tiles(program).BN, self.keys.device)
        return table, first, len(table)

    def transform(
        self, query_vectors: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """M (N, B, L); Psi's inverse denominators of rows (2, B, N) and columns (G, B, 2, L)."""
        table, first, T = self.row_tiles("length_transformation")
        M = self.empty_precise(self.N, self.B, self.L)
        inv_row = self.empty_precise(2, self.B, self.N)
        partial = self.empty_precise(T, self.B, 2, self.L)
        valid = self.keys if mask is None else mask.view(torch.uint8)
        tensors = (query_vectors, self.keys, valid, table, M, inv_row, partial)
        self.run("length_transformation", (T, self.B), *tensors, HAS_MASK=mask is not None)
        return M, inv_row, self.sum_groups(partial, first, inverse=True)

    def sum_groups(self, partial: Tensor, first: Tensor, inverse: bool) -> Tensor:
        """Column sums of row tiles (T, B, 2, L) to those of groups (G, B, 2, L), or inverses."""
        sums, size = self.empty_precise(self.G, self.B, 2, self.L), partial[0].numel()
        grid = (blocks(size, launch.FLAT), self.G)
        self.run("group_sums", grid, partial, first, sums, size=size, INVERSE=inverse)
        return sums

    def mix(self, M: Tensor, inv_row: Tensor, inv_column: Tensor) -> Tensor:
        """W = R^bw R^fw of both streams, (2, B, L, L)."""
        W, name = self.empty(2, self.B, self.L, self.L), "mixing_weights"
        table, _, T = self.row_tiles(name)
        grid = (self.token_blocks(name), blocks(self.L, self.tiles(name).BJ), self.B)
        self.run(name, grid, M, inv_row, inv_column, table, W, num_tiles=T)
        return W


def forward(
    query_vectors: Tensor,
    bias_vectors: Tensor,
    keys: Tensor,
    values_1: Tensor,
    values_2: Tensor,
    selectors: Tensor,
    mask: Tensor | None,
    groups: Sequence[int],
    tf32: bool | None,
    save: bool,
    store_m: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The output; B_1 - B_2, Psi's inverse denominators, M and W, each empty if not saved."""
    call = StaticLaunches(query_vectors, keys, groups, tf32)
    M, inv_row, inv_column = call.transform(query_vectors, mask)
    W = call.mix(M, inv_row, inv_column)
    out = torch.empty_like(keys)
    difference = torch.empty_like(keys) if save else call.empty(0)
    name = "selection"
    table, _, T = call.row_tiles(name)
    tensors = (M, inv_column, table, W, values_1, values_2, bias_vectors, selectors)
    grid = (call.token_blocks(name), call.channel_blocks(name), call.B)
    call.run(name, grid, *tensors, out, difference, num_tiles=T, SAVE=save)
    if not save:
        inv_row, inv_column = call.empty_precise(0), call.empty_precise(0)
    if not (save and store_m):
        M, W = call.empty_precise(0), call.empty(0)
    return out, difference, inv_row, inv_column, M, W


static_expansion = torch.library.custom_op(
    "captionbench::static_expansion", forward, mutates_args=()
)


@static_expansion.register_fake
def _(query_vectors: Tensor, E_B: Tensor, keys: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    groups, _, save, store_m = rest[-4:]
    (B, L, _), N, G = keys.shape, len(query_vectors), len(groups)
    precise = at_least_float32(keys.dtype)
    stored = save and store_m
    return (
        torch.empty_like(keys),
        torch.empty_like(keys) if save else keys.new_empty(0),
        keys.new_empty((2, B, N) if save else (0,), dtype=precise),
        keys.new_empty((G, B, 2, L) if save else (0,), dtype=precise),
        keys.new_empty((N, B, L) if stored else (0,), dtype=precise),
        keys.new_empty((2, B, L, L) if stored else (0,)),
    )


def backward(
    dO: Tensor,
    query_vectors: Tensor,
    bias_vectors: Tensor,
    keys: Tensor,
    values_1: Tensor,
    values_2: Tensor,
    selectors: Tensor,
    mask: Tensor | None,
    difference: Tensor,
    inv_row: Tensor,
    inv_column: Tensor,
    M: Tensor,
    W: Tensor,
    groups: Sequence[int],
    tf32: bool | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of E_Q, E_B, K, both V (2, B, L, d) and S."""
    call = StaticLaunches(query_vectors, keys, groups, tf32)
    N, B, L, d = call.N, call.B, call.L, call.d
    if not M.numel():
        M, _, _ = call.transform(query_vectors, mask)
        W = call.mix(M, inv_row, inv_column)
    with torch.autocast(keys.device.type, enabled=False):
        dB, dS = call.gate_gradients(dO, selectors, difference)
        dV = torch.bmm(W.view(2 * B, L, L).mT, dB.view(2 * B, L, d)).view(2, B, L, d)
        dW = torch.empty_like(W)  # (2, B, L, L)
        for s, V in enumerate((values_1, values_2)):
            torch.bmm(dB[s], V.mT, out=dW[s])

        X, rho = torch.empty_like(M), torch.empty_like(inv_row)
        table, first, T = call.row_tiles("weight_gradients")
        partial = call.empty_precise(T, B, 2, L)
        weights = (M, inv_row, inv_column, table, dB, dW, bias_vectors, X, rho, partial)
        call.run("weight_gradients", (T, B), *weights)
        gamma = call.sum_groups(partial, first, inverse=False)
        # dM grows with Psi's inverse denominators, beyond float16's range
        dM = X if keys.dtype == torch.float16 else torch.empty_like(M, dtype=keys.dtype)
        table, _, T = call.row_tiles("length_gradients")
        found = (M, inv_row, inv_column, table, X, rho, gamma, dM)
        call.run("length_gradients", (T, B), *found)
        dM = dM.view(N, B * L)
        dQ = (dM @ keys.view(B * L, d).to(dM.dtype)).to(keys.dtype)  # (N, d)
        dK = (dM.mT @ query_vectors.to(dM.dtype)).to(keys.dtype).view(B, L, d)

    # no more parts than fill the device
    name = "bias_gradients"
    (table, _, T), channels = call.row_tiles(name), call.channel_blocks(name)
    parts = min(blocks(B, SEQUENCES), blocks(PROGRAMS, T * channels))
    sequences = blocks(B, parts)
    parts = blocks(B, sequences)
    dE_B = call.empty_precise(parts, N, d)
    grid = (T, channels, parts)
    call.run(name, grid, M, inv_column, table, dB, dE_B, sequences=sequences)
    return dQ, dE_B.sum(0).to(keys.dtype), dK, dV, dS


static_expansion_backward = torch.library.custom_op(
    "captionbench::static_expansion_backward", backward, mutates_args=()
)


@static_expansion_backward.register_fake
def _(
    _: Tensor, query_vectors: Tensor, bias_vectors: Tensor, keys: Tensor, *__: Any
) -> tuple[Tensor, ...]:
    like = (torch.empty_like(x) for x in (query_vectors, bias_vectors, keys))
    return *like, keys.new_empty((2, *keys.shape)), torch.empty_like(keys)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, groups, tf32, _, _ = inputs
    ctx.save_for_backward(*tensors, *output[1:])
    ctx.groups, ctx.tf32 = groups, tf32
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, dO: Tensor | None, *_: Any) -> tuple[Any, ...]:
    if dO is None:
        return (None,) * 11
    tensors = (dO.contiguous(), *ctx.saved_tensors)
    operator: Any = static_expansion_backward if watched(*tensors) else backward
    dQ, dE_B, dK, dV, dS = operator(*tensors, ctx.groups, ctx.tf32)
    return dQ, dE_B, dK, dV[0], dV[1], dS, None, None, None, None, None


static_expansion.register_autograd(_backward, setup_context=_setup_context)
direct_expansion = direct(forward, _setup_context, _backward)


@register_flop_formula(torch.ops.captionbench.static_expansion)
def forward_flops(
    query_shape: Sequence[int], _: Any, key_shape: Sequence[int], *__: Any, **___: Any
) -> int:
    """2 (3 N L d + 2 N L^2 + 2 L^2 d) a sequence: M and R^bw E_B; W; W V."""
    N, (B, L, d) = query_shape[0], key_shape
    return 2 * B * (3 * N * L * d + 2 * N * L * L + 2 * L * L * d)


@register_flop_formula(torch.ops.captionbench.static_expansion_backward)
def backward_flops(*shapes: Any, **_: Any) -> int:
    """2 (6 N L d + 4 N L^2 + 4 L^2 d) a sequence; and M and W unless they are saved.

    U, dE_B, dK, dQ; T, dR^fw; dV, dW.
    """
    (B, L, d), N, stored = shapes[0], shapes[1][0], shapes[11][0] > 0
    recomputed = 0 if stored else N * L * d + 2 * N * L * L
    return 2 * B * (6 * N * L * d + 4 * N * L * L + 4 * L * L * d + recomputed)
