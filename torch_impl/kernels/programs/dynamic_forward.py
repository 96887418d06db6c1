"""Dynamic expansion, forward.

Row (j, n) of M is A[j] + P[n], computed tile by tile where it is used. ``Z`` (B, L + N_E, L) has
A = C K^T / sqrt(d) in its first L rows, P = E_Q K^T / sqrt(d) in the others. ``Y``
(2, B, L, 2 L + N_E) has, by stream and token i, the weights of [V_s; C; b]: W_s, then R^bw summed
over n, then R^bw summed over j. ``INV_ROW`` (2, B, N_E, L) and ``INV_COLUMN`` (B, 2, L) are Psi's
inverse denominators.
"""

import triton
import triton.language as tl

from .common import (
    backward_masked,
    forward_masked,
    load,
    load_pair,
    mixed,
    number,
    product,
    sigmoid,
    store,
    streams,
    total,
    valid_tokens,
)


@triton.jit
def dynamic_lengths(
    C,
    Q,
    K,
    Z,
    scale: tl.float64,
    L,
    D,
    NE,
    PRECISION: tl.constexpr,
    BI: tl.constexpr,
    BK: tl.constexpr,
):
    """Z: the rows of M (v2 equation 2) of conditions and of expansion vectors."""
    r = tl.program_id(0) * BI + tl.arange(0, BI)
    i = tl.program_id(1) * BI + tl.arange(0, BI)
    b = tl.program_id(2).to(tl.int64)
    acc = tl.full([BI, BI], 0.0, Z.dtype.element_ty)
    for d0 in range(0, D, BK):
        d = d0 + tl.arange(0, BK)
        c = load(C + b * L * D, r, r < L, d, d < D, D)
        q = load(Q, r - L, (r >= L) & (r < L + NE), d, d < D, D)
        x = tl.where(r[:, None] < L, c, q)
        k = load(K + b * L * D, i, i < L, d, d < D, D)
        acc = product(x, tl.trans(k), acc, K.dtype.element_ty, PRECISION)
    store(Z + b * (L + NE) * L, r, r < L + NE, i, i < L, L, acc * number(scale, acc.dtype))


@triton.jit
def dynamic_sums(
    Z,
    MASK,
    INV_ROW,
    INV_COLUMN,
    epsilon: tl.float64,
    B,
    L,
    NE,
    HAS_MASK: tl.constexpr,
    CAUSAL: tl.constexpr,
    BI: tl.constexpr,
):
    """Inverse row sums of the rows (j, n) and inverse column sums, for a block of tokens."""
    here = tl.program_id(0) * BI + tl.arange(0, BI)
    b = tl.program_id(1).to(tl.int64)
    Z += b * (L + NE) * L
    ours = valid_tokens(MASK + b * L, here, L, HAS_MASK)
    column_1 = tl.full([BI], 0.0, Z.dtype.element_ty)
    column_2 = tl.full([BI], 0.0, Z.dtype.element_ty)
    for n in range(NE):
        row_1 = tl.full([BI], 0.0, Z.dtype.element_ty)
        row_2 = tl.full([BI], 0.0, Z.dtype.element_ty)
        for x0 in range(0, L, BI):
            x = x0 + tl.arange(0, BI)
            theirs = valid_tokens(MASK + b * L, x, L, HAS_MASK)
            p_1, p_2 = streams(forward_masked(Z, n, here, ours, x, theirs, L, CAUSAL))
            row_1 += total(p_1, 1)
            row_2 += total(p_2, 1)
            p_1, p_2 = streams(backward_masked(Z, n, x, theirs, here, ours, L, CAUSAL))
            column_1 += total(p_1, 0)
            column_2 += total(p_2, 0)
        at = INV_ROW + (b * NE + n) * L + here
        tl.store(at, 1.0 / (row_1 + number(epsilon, row_1.dtype)), mask=here < L)
        tl.store(at + B * NE * L, 1.0 / (row_2 + number(epsilon, row_2.dtype)), mask=here < L)
    at = INV_COLUMN + b * 2 * L + here
    tl.store(at, 1.0 / (column_1 + number(epsilon, column_1.dtype)), mask=here < L)
    tl.store(at + L, 1.0 / (column_2 + number(epsilon, column_2.dtype)), mask=here < L)


@triton.jit
def dynamic_weights(
    Z,
    MASK,
    INV_ROW,
    INV_COLUMN,
    Y,
    num_blocks,
    B,
    L,
    NE,
    HAS_MASK: tl.constexpr,
    CAUSAL: tl.constexpr,
    PRECISION: tl.constexpr,
    BI: tl.constexpr,
):
    """Y: W_s = R_s^bw R_s^fw, and the sums of R_s^bw over n and over j."""
    part = tl.program_id(1)
    i = tl.program_id(0) * BI + tl.arange(0, BI)
    k = part * BI + tl.arange(0, BI)
    b = tl.program_id(2).to(tl.int64)
    Z += b * (L + NE) * L
    MASK += b * L
    INV_ROW += b * NE * L
    tokens_i = valid_tokens(MASK, i, L, HAS_MASK)
    tokens = valid_tokens(MASK, k, L, HAS_MASK)
    inv_c_1, inv_c_2 = load_pair(INV_COLUMN + b * 2 * L, i, i < L, L)
    width = 2 * L + NE
    Y_1 = Y + b * L * width
    Y_2 = Y + (B + b) * L * width
    acc_1 = tl.full([BI, BI], 0.0, Z.dtype.element_ty)
    acc_2 = tl.full([BI, BI], 0.0, Z.dtype.element_ty)
    for j0 in range(0, L, BI):
        j = j0 + tl.arange(0, BI)
        rows = valid_tokens(MASK, j, L, HAS_MASK)
        for n in range(NE):
            bw_1, bw_2 = streams(backward_masked(Z, n, j, rows, i, tokens_i, L, CAUSAL))
            fw_1, fw_2 = streams(forward_masked(Z, n, j, rows, k, tokens, L, CAUSAL))
            inv_r_1, inv_r_2 = load_pair(INV_ROW + n * L, j, j < L, B * NE * L)
            bw_1 *= inv_c_1[None, :]
            bw_2 *= inv_c_2[None, :]
            fw_1 *= inv_r_1[:, None]
            fw_2 *= inv_r_2[:, None]
            acc_1 = product(tl.trans(bw_1), fw_1, acc_1, Y.dtype.element_ty, PRECISION)
            acc_2 = product(tl.trans(bw_2), fw_2, acc_2, Y.dtype.element_ty, PRECISION)
    store(Y_1, i, i < L, k, k < L, width, acc_1)
    store(Y_2, i, i < L, k, k < L, width, acc_2)
    # weights of the conditions: the tokens k are the rows' tokens j
    sum_1 = tl.full([BI, BI], 0.0, Z.dtype.element_ty)
    sum_2 = tl.full([BI, BI], 0.0, Z.dtype.element_ty)
    for n in range(NE):
        bw_1, bw_2 = streams(backward_masked(Z, n, k, tokens, i, tokens_i, L, CAUSAL))
        sum_1 += bw_1
        sum_2 += bw_2
    store(Y_1 + L, i, i < L, k, k < L, width, tl.trans(sum_1 * inv_c_1[None, :]))
    store(Y_2 + L, i, i < L, k, k < L, width, tl.trans(sum_2 * inv_c_2[None, :]))
    # weights of the bias vectors: each program computes its share
    for n0 in range(0, NE, num_blocks):
        n = n0 + part
        if n < NE:
            column_1 = tl.full([BI], 0.0, Z.dtype.element_ty)
            column_2 = tl.full([BI], 0.0, Z.dtype.element_ty)
            for j0 in range(0, L, BI):
                j = j0 + tl.arange(0, BI)
                rows = valid_tokens(MASK, j, L, HAS_MASK)
                bw_1, bw_2 = streams(backward_masked(Z, n, j, rows, i, tokens_i, L, CAUSAL))
                column_1 += total(bw_1, 0)
                column_2 += total(bw_2, 0)
            at = i * width + 2 * L + n
            tl.store(Y_1 + at, (column_1 * inv_c_1).to(Y.dtype.element_ty), mask=i < L)
            tl.store(Y_2 + at, (column_2 * inv_c_2).to(Y.dtype.element_ty), mask=i < L)


@triton.jit
def dynamic_selection(
    Y,
    C,
    V_1,
    V_2,
    E_B,
    S,
    OUT,
    DIFFERENCE,
    B,
    L,
    D,
    NE,
    SAVE: tl.constexpr,
    PRECISION: tl.constexpr,
    ACC: tl.constexpr,
    BI: tl.constexpr,
    BD: tl.constexpr,
):
    """B_s = Y_s [V_s; C; b], gated (v2 equations 7, 8); B_1 - B_2 for backward."""
    i = tl.program_id(0) * BI + tl.arange(0, BI)
    d = tl.program_id(1) * BD + tl.arange(0, BD)
    b = tl.program_id(2).to(tl.int64)
    tokens = i < L
    channels = d < D
    width = 2 * L + NE
    acc_1 = tl.full([BI, BD], 0.0, ACC)
    acc_2 = tl.full([BI, BD], 0.0, ACC)
    for r0 in range(0, 2 * L + NE, BI):
        r = r0 + tl.arange(0, BI)
        y_1 = load(Y + b * L * width, i, tokens, r, r < width, width)
        y_2 = load(Y + (B + b) * L * width, i, tokens, r, r < width, width)
        x_1, x_2 = mixed(C + b * L * D, V_1 + b * L * D, V_2 + b * L * D, E_B, r, d, L, NE, D)
        acc_1 = product(y_1, x_1, acc_1, V_1.dtype.element_ty, PRECISION)
        acc_2 = product(y_2, x_2, acc_2, V_1.dtype.element_ty, PRECISION)
    gate = sigmoid(load(S + b * L * D, i, tokens, d, channels, D).to(ACC))
    difference = acc_1 - acc_2
    store(OUT + b * L * D, i, tokens, d, channels, D, acc_2 + gate * difference)
    if SAVE:
        store(DIFFERENCE + b * L * D, i, tokens, d, channels, D, difference)
