"""Dynamic expansion as custom operators, forward and backward.

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
from torch_impl.kernels.launch import Launches, blocks
from torch_impl.kernels.support import direct, watched


def _launches(
    query_vectors: Tensor, keys: Tensor, mask: Tensor | None, causal: bool, tf32: bool | None
) -> tuple[Launches, Tensor]:
    sizes = {"NE": len(query_vectors), "CAUSAL": causal, "HAS_MASK": mask is not None}
    call = Launches(keys, tf32, len(query_vectors), **sizes)
    call.constants["num_blocks"] = call.token_blocks(launch.DYNAMIC)
    return call, keys if mask is None else mask.view(torch.uint8)


def forward(
    query_vectors: Tensor,
    bias_vectors: Tensor,
    conditions: Tensor,
    keys: Tensor,
    values_1: Tensor,
    values_2: Tensor,
    selectors: Tensor,
    mask: Tensor | None,
    causal: bool,
    tf32: bool | None,
    save: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The output; B_1 - B_2, Psi's inverse denominators, Z and Y, each empty if not ``save``."""
    call, valid = _launches(query_vectors, keys, mask, causal, tf32)
    B, L, N_E, tokens = call.B, call.L, len(query_vectors), call.token_blocks(launch.DYNAMIC)
    Z, Y = call.empty_precise(B, L + N_E, L), call.empty(2, B, L, 2 * L + N_E)
    inv_row, inv_column = call.empty_precise(2, B, N_E, L), call.empty_precise(B, 2, L)
    rows = blocks(L + N_E, call.tiles(launch.DYNAMIC).BI)
    call.run("dynamic_lengths", (rows, tokens, B), conditions, query_vectors, keys, Z)
    call.run("dynamic_sums", (tokens, B), Z, valid, inv_row, inv_column)
    call.run("dynamic_weights", (tokens, tokens, B), Z, valid, inv_row, inv_column, Y)
    out = torch.empty_like(keys)
    difference = torch.empty_like(keys) if save else call.empty(0)
    mixed = (Y, conditions, values_1, values_2, bias_vectors, selectors, out, difference)
    grid = (tokens, call.channel_blocks(launch.DYNAMIC), B)
    call.run("dynamic_selection", grid, *mixed, SAVE=save)
    if not save:
        inv_row, inv_column, Z = (call.empty_precise(0) for _ in range(3))
        Y = call.empty(0)
    return out, difference, inv_row, inv_column, Z, Y


dynamic_expansion = torch.library.custom_op(
    "captionbench::dynamic_expansion", forward, mutates_args=()
)


@dynamic_expansion.register_fake
def _(query_vectors: Tensor, b: Tensor, C: Tensor, keys: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    (B, L, _), N_E, save = keys.shape, len(query_vectors), rest[-1]
    precise = at_least_float32(keys.dtype)
    return (
        torch.empty_like(keys),
        torch.empty_like(keys) if save else keys.new_empty(0),
        keys.new_empty((2, B, N_E, L) if save else (0,), dtype=precise),
        keys.new_empty((B, 2, L) if save else (0,), dtype=precise),
        keys.new_empty((B, L + N_E, L) if save else (0,), dtype=precise),
        keys.new_empty((2, B, L, 2 * L + N_E) if save else (0,)),
    )


def backward(
    dO: Tensor,
    query_vectors: Tensor,
    bias_vectors: Tensor,
    conditions: Tensor,
    keys: Tensor,
    values_1: Tensor,
    values_2: Tensor,
    selectors: Tensor,
    mask: Tensor | None,
    difference: Tensor,
    inv_row: Tensor,
    inv_column: Tensor,
    Z: Tensor,
    Y: Tensor,
    causal: bool,
    tf32: bool | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of E_Q, E_B, C, K, both V (2, B, L, d) and S."""
    call, valid = _launches(query_vectors, keys, mask, causal, tf32)
    B, L, d, N_E = call.B, call.L, call.d, len(query_vectors)
    tokens, BI, width = (
        call.token_blocks(launch.DYNAMIC),
        call.tiles(launch.DYNAMIC).BI,
        2 * L + N_E,
    )
    dB, dS = call.gate_gradients(dO, selectors, difference)
    dY = torch.empty_like(Y)
    grid = (tokens, blocks(width, BI), B)
    mixed = (conditions, values_1, values_2, bias_vectors)
    call.run("dynamic_mix_gradients", grid, dB, *mixed, dY)

    X, rho = call.empty_precise(N_E, B, L, L), call.empty_precise(tokens, *inv_row.shape)
    gamma = call.empty_precise(tokens * N_E, B, 2, L)
    # dM grows with Psi's inverse denominators, beyond float16's range
    low = at_least_float32(keys.dtype) if keys.dtype == torch.float16 else keys.dtype
    dA, dP = keys.new_empty((B, L, L), dtype=low), keys.new_empty((N_E, B, L), dtype=low)
    sums = (Z, valid, inv_row, inv_column)
    call.run("dynamic_weight_gradients", (tokens * N_E, tokens, B), *sums, dY, X, rho, gamma)
    found = (*sums, X, rho, gamma, dA, dP)
    call.run("dynamic_length_gradients", (tokens, tokens, B), *found)

    with torch.autocast(keys.device.type, enabled=False):
        dX = torch.bmm(Y.view(2 * B, L, width).mT, dB.view(2 * B, L, d)).view(2, B, width, d)
        dV, dC, db = dX.split((L, L, N_E), dim=2)  # (2, B, L or N_E, d)
        K, C, q = (x.to(low) for x in (keys, conditions, query_vectors))
        dP = dP.view(N_E, B * L)
        dQ = dP @ K.view(B * L, d)  # (N_E, d)
        dC = torch.baddbmm(dC.sum(0).to(low), dA, K)  # (B, L, d)
        dK = torch.baddbmm((dP.mT @ q).view(B, L, d), dA.mT, C)  # (B, L, d)
    dQ, dC, dK = (x.to(keys.dtype) for x in (dQ, dC, dK))
    return dQ, db.sum((0, 1)), dC, dK, dV.contiguous(), dS


dynamic_expansion_backward = torch.library.custom_op(
    "captionbench::dynamic_expansion_backward", backward, mutates_args=()
)


@dynamic_expansion_backward.register_fake
def _(
    _: Tensor,
    query_vectors: Tensor,
    bias_vectors: Tensor,
    conditions: Tensor,
    keys: Tensor,
    *__: Any,
) -> tuple[Tensor, ...]:
    like = (torch.empty_like(x) for x in (query_vectors, bias_vectors, conditions, keys))
    return *like, keys.new_empty((2, *keys.shape)), torch.empty_like(keys)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, causal, tf32, _ = inputs
    ctx.save_for_backward(*tensors, *output[1:])
    ctx.causal, ctx.tf32 = causal, tf32
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, dO: Tensor | None, *_: Any) -> tuple[Any, ...]:
    if dO is None:
        return (None,) * 11
    tensors = (dO.contiguous(), *ctx.saved_tensors)
    operator: Any = dynamic_expansion_backward if watched(*tensors) else backward
    dQ, db, dC, dK, dV, dS = operator(*tensors, ctx.causal, ctx.tf32)
    return dQ, db, dC, dK, dV[0], dV[1], dS, None, None, None, None


dynamic_expansion.register_autograd(_backward, setup_context=_setup_context)
direct_expansion = direct(forward, _setup_context, _backward)


@register_flop_formula(torch.ops.captionbench.dynamic_expansion)
def forward_flops(
    query_shape: Sequence[int], _: Any, key_shape: Sequence[int], *__: Any, **___: Any
) -> int:
    """2 (5 L^2 d + 3 N_E L d + 2 N_E L^3) a sequence: A, P; Y [V_s; C; b]; W."""
    N_E, (B, L, d) = query_shape[0], key_shape
    return 2 * B * (5 * L * L * d + 3 * N_E * L * d + 2 * N_E * L**3)


@register_flop_formula(torch.ops.captionbench.dynamic_expansion_backward)
def backward_flops(dO_shape: Sequence[int], query_shape: Sequence[int], *_: Any, **__: Any) -> int:
    """2 (10 L^2 d + 6 N_E L d + 4 N_E L^3) a sequence: dY, dX; dQ, dC, dK; T, dR^fw."""
    (B, L, d), N_E = dO_shape, query_shape[0]
    return 2 * B * (10 * L * L * d + 6 * N_E * L * d + 4 * N_E * L**3)
