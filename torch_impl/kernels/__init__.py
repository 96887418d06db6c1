"""The expansion operators as Triton kernels, which never write the expanded values.

``static_expansion`` and ``dynamic_expansion`` are custom operators with fake implementations,
autograd and FLOP formulas: they work under ``torch.compile``, ``torch.export``, autocast and
``FlopCounterMode``. Where nothing needs an operator, the kernels are called directly.
``unsupported`` tells why a call cannot use them. CUDA tensors run compiled; CPU tensors run in
Triton's interpreter, inside ``interpreted`` only. Tiles are those that were fastest on an H100
(``launch``).

A product in float32 is three on TF32: of the operands' upper halves, and of each with the other's
lower half. Its error is that of float32 (the conformance table has it), without tensor cores it
takes several times as long.

Both use W = R^bw R^fw (L x L) of each stream instead of F = R^fw V + E_B (N x d), with hand-derived
gradients. M, its sums and their gradients are float32 at least; operands of products are rounded to
the dtype and accumulated in float32 at least. Sums over rows, batches and tiles have
a fixed order, without atomics, so that equal calls have equal results.

Bytes that a program reads and writes, once each, for e bytes an entry of the dtype, 4 of float32:
x = B L d e, tokens; m = 4 N B L, of M's shape; w = 2 B L^2 e, W of both streams; q = N d e; the
rest is row and column sums, at most a few hundredths of these. In v2's encoder (B = 48, L = 144,
d = 512, N = 992 in five groups, bfloat16) x = 7.1, m = 27.4, w = 4.0 and q = 1.0 MB.

Static, forward, 3 m + 2 w + 6 x + 2 q:

    length_transformation   q + x -> m               M, row sums; column sums by row tile
    group_sums                                       column sums by group
    mixing_weights          m -> w                   W
    selection               m + w + 3 x + q -> 2 x   W V + R^bw E_B, gated; B_1 - B_2

Static, backward, 5 m + m e / 4 + w + 10 x + 2 q:

    gate_gradients          3 x -> 3 x               dB_1, dB_2, dS
    weight_gradients        m + 2 x + w + q -> m     dM without Psi's sums; rho, gamma by row tile
    group_sums                                       gamma by group
    length_gradients        2 m -> m e / 4           dM
    bias_gradients          m + 2 x -> q             dE_B, in a few parts of the batch

Five programs read M. Within a pass it is stored, which costs less than recomputing it in each. With
``store_m`` it is saved for backward, where saved activations are m + w + x; without it they are x,
and the backward pass first repeats the first three programs, N L d + 2 N L^2 multiply-accumulates a
sequence.

Four products of the backward pass are PyTorch's own: dV = W^T dB and dW = dB V^T by sequence;
dQ = dM K / sqrt(d) and dK = dM^T Q / sqrt(d) for the whole batch at once, as M is (N, B, L). For
them dM is stored: writing it once and reading it twice moves 3 m e / 4, while computing it in both
products from M and the numerators would read 4 m.

Dynamic: row (j, n) of M is A[j] + P[n], so the only tensor of N_E L rows that is written holds dM's
numerators (4 N_E B L^2). Captions are so short that launches dominate: four programs forward and
four backward, beside five products, two sums and, in float16, casts:

    dynamic_lengths             Z: A and P
    dynamic_sums                row and column sums
    dynamic_weights             Y: W, and R^bw summed over n and over j
    dynamic_selection           Y [V_s; C; b], gated; B_1 - B_2
    gate_gradients              dB_1, dB_2, dS
    dynamic_mix_gradients       dY = dB [V_s; C; b]^T
    dynamic_weight_gradients    dM without Psi's sums; rho, gamma
    dynamic_length_gradients    dM summed over n and over j
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from torch_impl.kernels import dynamic, static
from torch_impl.kernels.support import interpreted, needs_backward, prepared, unsupported, watched

__all__ = ["dynamic_expansion", "interpreted", "static_expansion", "unsupported"]


def static_expansion(
    query_vectors: Tensor,
    bias_vectors: Tensor,
    keys: Tensor,
    values_1: Tensor,
    values_2: Tensor,
    selectors: Tensor,
    groups: Sequence[int],
    mask: Tensor | None = None,
    *,
    store_m: bool = True,
    tf32: bool | None = None,
) -> Tensor:
    """``torch_impl.expansion.static_expansion`` by Triton kernels; for other arguments see there.

    Args:
        store_m: save M and W for backward; else they are recomputed in it.
        tf32: round float32 operands of products to TF32; None follows
            ``torch.set_float32_matmul_precision``.

    Returns:
        (B, L, d), zero in padded rows.

    Raises:
        ValueError: the reason that ``unsupported`` gives; groups that are not positive or do not
            add up to N.
    """
    tensors = (query_vectors, bias_vectors, keys, values_1, values_2, selectors)
    _check(*tensors, mask=mask)
    if min(groups, default=0) < 1 or sum(groups) != len(query_vectors):
        raise ValueError(f"groups {tuple(groups)} must be positive, of sum {len(query_vectors)}")
    mask = None if mask is None else mask.contiguous()
    args = (*prepared(tensors), mask, list(groups), tf32, needs_backward(tensors), store_m)
    operator = static.static_expansion if watched(*tensors) else static.direct_expansion
    return operator(*args)[0]


def dynamic_expansion(
    query_vectors: Tensor,
    bias_vectors: Tensor,
    conditions: Tensor,
    keys: Tensor,
    values_1: Tensor,
    values_2: Tensor,
    selectors: Tensor,
    mask: Tensor | None = None,
    *,
    causal: bool = True,
    tf32: bool | None = None,
) -> Tensor:
    """``torch_impl.expansion.dynamic_expansion`` by Triton kernels; for other arguments see there.

    Args:
        tf32: round float32 operands of products to TF32; None follows
            ``torch.set_float32_matmul_precision``.

    Returns:
        (B, L, d), zero in padded rows.

    Raises:
        ValueError: the reason that ``unsupported`` gives.
    """
    tensors = (query_vectors, bias_vectors, conditions, keys, values_1, values_2, selectors)
    _check(*tensors, mask=mask)
    mask = None if mask is None else mask.contiguous()
    args = (*prepared(tensors), mask, causal, tf32, needs_backward(tensors))
    operator = dynamic.dynamic_expansion if watched(*tensors) else dynamic.direct_expansion
    return operator(*args)[0]


def _check(*tensors: Tensor, mask: Tensor | None) -> None:
    reason = unsupported(*tensors, mask=mask)
    if reason is not None:
        raise ValueError(f"no kernel for this call: {reason}")
