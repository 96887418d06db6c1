"""Static expansion, forward.

A row tile is (first row, row after the last, group) in ``TILES``: each is within one group. M and
every tensor of its shape are (N, B, L), so that a product that sums over the batch is one matrix
product. Padded tokens have M = 0, so they add nothing to later sums and products. ``INV_ROW``
(2, B, N) and ``INV_COLUMN`` (G, B, 2, L) are Psi's inverse denominators by stream; ``share`` is
1 / len(G).
"""

import triton
import triton.language as tl

from .common import (
    load,
    load_pair,
    number,
    product,
    row_tile,
    sigmoid,
    store,
    streams,
    total,
    valid_tokens,
)


@triton.jit
def length_transformation(
    Q,
    K,
    MASK,
    TILES,
    M,
    INV_ROW,
    PARTIAL,
    scale: tl.float64,
    epsilon: tl.float64,
    B,
    N,
    L,
    D,
    HAS_MASK: tl.constexpr,
    PRECISION: tl.constexpr,
    BN: tl.constexpr,
    BI: tl.constexpr,
    BK: tl.constexpr,
):
    """M = Q K^T / sqrt(d) (v2 equation 2); inverse row sums; column sums by row tile."""
    t = tl.program_id(0)
    b = tl.program_id(1).to(tl.int64)
    n, rows, _ = row_tile(TILES, t, BN)
    M += b * L
    sum_1 = tl.full([BN], 0.0, M.dtype.element_ty)
    sum_2 = tl.full([BN], 0.0, M.dtype.element_ty)
    for i0 in range(0, L, BI):
        i = i0 + tl.arange(0, BI)
        tokens = i < L
        acc = tl.full([BN, BI], 0.0, M.dtype.element_ty)
        for d0 in range(0, D, BK):
            d = d0 + tl.arange(0, BK)
            q = load(Q, n, rows, d, d < D, D)
            k = load(K + b * L * D, i, tokens, d, d < D, D)
            acc = product(q, tl.trans(k), acc, K.dtype.element_ty, PRECISION)
        valid = valid_tokens(MASK + b * L, i, L, HAS_MASK)
        z = tl.where(rows[:, None] & valid[None, :], acc * number(scale, acc.dtype), 0.0)
        store(M, n.to(tl.int64), rows, i, tokens, B * L, z)
        p_1, p_2 = streams(z)
        sum_1 += total(p_1, 1)
        sum_2 += total(p_2, 1)
        partial = PARTIAL + (t * B + b) * 2 * L + i
        tl.store(partial, total(p_1, 0), mask=tokens)
        tl.store(partial + L, total(p_2, 0), mask=tokens)
    at = INV_ROW + b * N + n
    tl.store(at, 1.0 / (sum_1 + number(epsilon, sum_1.dtype)), mask=rows)
    tl.store(at + B * N, 1.0 / (sum_2 + number(epsilon, sum_2.dtype)), mask=rows)


@triton.jit
def group_sums(
    PARTIAL,
    FIRST,
    SUMS,
    epsilon: tl.float64,
    size,
    INVERSE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Sums of row tiles (T, size) to sums of groups (G, size), or their inverses, in order."""
    x = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    g = tl.program_id(1)
    acc = tl.full([BLOCK], 0.0, SUMS.dtype.element_ty)
    t = tl.load(FIRST + g)
    last = tl.load(FIRST + g + 1)
    at = PARTIAL + t.to(tl.int64) * size + x
    while t < last:
        acc += tl.load(at, mask=x < size, other=0.0)
        at += size
        t += 1
    if INVERSE:
        acc = 1.0 / (acc + number(epsilon, acc.dtype))
    tl.store(SUMS + g.to(tl.int64) * size + x, acc, mask=x < size)


@triton.jit
def mixing_weights(
    M,
    INV_ROW,
    INV_COLUMN,
    TILES,
    W,
    share: tl.float64,
    num_tiles,
    B,
    N,
    L,
    PRECISION: tl.constexpr,
    BN: tl.constexpr,
    BI: tl.constexpr,
    BJ: tl.constexpr,
):
    """W_s = R_s^bw R_s^fw, (2, B, L, L): tokens i read tokens j through all rows n."""
    i = tl.program_id(0) * BI + tl.arange(0, BI)
    j = tl.program_id(1) * BJ + tl.arange(0, BJ)
    b = tl.program_id(2).to(tl.int64)
    M += b * L
    acc_1 = tl.full([BI, BJ], 0.0, M.dtype.element_ty)
    acc_2 = tl.full([BI, BJ], 0.0, M.dtype.element_ty)
    for t in range(num_tiles):
        n, rows, g = row_tile(TILES, t, BN)
        read_1, read_2 = streams(load(M, n.to(tl.int64), rows, i, i < L, B * L))
        seen_1, seen_2 = streams(load(M, n.to(tl.int64), rows, j, j < L, B * L))
        inv_c_1, inv_c_2 = load_pair(INV_COLUMN + (g * B + b) * 2 * L, i, i < L, L)
        inv_r_1, inv_r_2 = load_pair(INV_ROW + b * N, n, rows, B * N)
        read_1 = tl.trans(read_1 * inv_c_1[None, :])
        read_2 = tl.trans(read_2 * inv_c_2[None, :])
        seen_1 *= inv_r_1[:, None]
        seen_2 *= inv_r_2[:, None]
        acc_1 = product(read_1, seen_1, acc_1, W.dtype.element_ty, PRECISION)
        acc_2 = product(read_2, seen_2, acc_2, W.dtype.element_ty, PRECISION)
    store(W + b * L * L, i, i < L, j, j < L, L, acc_1 * number(share, acc_1.dtype))
    store(W + (B + b) * L * L, i, i < L, j, j < L, L, acc_2 * number(share, acc_2.dtype))


@triton.jit
def selection(
    M,
    INV_COLUMN,
    TILES,
    W,
    V_1,
    V_2,
    E_B,
    S,
    OUT,
    DIFFERENCE,
    share: tl.float64,
    num_tiles,
    B,
    L,
    D,
    SAVE: tl.constexpr,
    PRECISION: tl.constexpr,
    BN: tl.constexpr,
    BI: tl.constexpr,
    BJ: tl.constexpr,
    BD: tl.constexpr,
):
    """B_s = W_s V_s + R_s^bw E_B, gated (v2 equations 7, 8); B_1 - B_2 for backward."""
    i = tl.program_id(0) * BI + tl.arange(0, BI)
    d = tl.program_id(1) * BD + tl.arange(0, BD)
    b = tl.program_id(2).to(tl.int64)
    tokens = i < L
    channels = d < D
    M += b * L
    acc_1 = tl.full([BI, BD], 0.0, M.dtype.element_ty)
    acc_2 = tl.full([BI, BD], 0.0, M.dtype.element_ty)
    for t in range(num_tiles):
        n, rows, g = row_tile(TILES, t, BN)
        read_1, read_2 = streams(load(M, n.to(tl.int64), rows, i, tokens, B * L))
        inv_c_1, inv_c_2 = load_pair(INV_COLUMN + (g * B + b) * 2 * L, i, tokens, L)
        read_1 = tl.trans(read_1 * inv_c_1[None, :])
        read_2 = tl.trans(read_2 * inv_c_2[None, :])
        e = load(E_B, n, rows, d, channels, D)
        acc_1 = product(read_1, e, acc_1, V_1.dtype.element_ty, PRECISION)
        acc_2 = product(read_2, e, acc_2, V_1.dtype.element_ty, PRECISION)
    acc_1 *= number(share, acc_1.dtype)
    acc_2 *= number(share, acc_2.dtype)
    for j0 in range(0, L, BJ):
        j = j0 + tl.arange(0, BJ)
        w_1 = load(W + b * L * L, i, tokens, j, j < L, L)
        w_2 = load(W + (B + b) * L * L, i, tokens, j, j < L, L)
        v_1 = load(V_1 + b * L * D, j, j < L, d, channels, D)
        v_2 = load(V_2 + b * L * D, j, j < L, d, channels, D)
        acc_1 = product(w_1, v_1, acc_1, V_1.dtype.element_ty, PRECISION)
        acc_2 = product(w_2, v_2, acc_2, V_1.dtype.element_ty, PRECISION)
    gate = sigmoid(load(S + b * L * D, i, tokens, d, channels, D).to(acc_1.dtype))
    difference = acc_1 - acc_2
    store(OUT + b * L * D, i, tokens, d, channels, D, acc_2 + gate * difference)
    if SAVE:
        store(DIFFERENCE + b * L * D, i, tokens, d, channels, D, difference)
