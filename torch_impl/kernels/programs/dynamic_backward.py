"""Dynamic expansion, backward; the names are those of the hand-derived gradients."""

import triton
import triton.language as tl

from .common import (
    backward_masked,
    device_function,
    expanded,
    forward_masked,
    load,
    load_pair,
    mixed,
    number,
    product,
    store,
    streams,
    total,
    valid_tokens,
)


@triton.jit
def dynamic_mix_gradients(
    DB,
    C,
    V_1,
    V_2,
    E_B,
    DY,
    B,
    L,
    D,
    NE,
    PRECISION: tl.constexpr,
    ACC: tl.constexpr,
    BI: tl.constexpr,
    BK: tl.constexpr,
):
    """dY_s = dB_s [V_s; C; b]^T, (2, B, L, 2 L + N_E): dW and the two parts of U."""
    i = tl.program_id(0) * BI + tl.arange(0, BI)
    r = tl.program_id(1) * BI + tl.arange(0, BI)
    b = tl.program_id(2).to(tl.int64)
    width = 2 * L + NE
    acc_1 = tl.full([BI, BI], 0.0, ACC)
    acc_2 = tl.full([BI, BI], 0.0, ACC)
    for d0 in range(0, D, BK):
        d = d0 + tl.arange(0, BK)
        x_1, x_2 = mixed(C + b * L * D, V_1 + b * L * D, V_2 + b * L * D, E_B, r, d, L, NE, D)
        dB_1 = load(DB + b * L * D, i, i < L, d, d < D, D)
        dB_2 = load(DB + (B + b) * L * D, i, i < L, d, d < D, D)
        acc_1 = product(dB_1, tl.trans(x_1), acc_1, DB.dtype.element_ty, PRECISION)
        acc_2 = product(dB_2, tl.trans(x_2), acc_2, DB.dtype.element_ty, PRECISION)
    store(DY + b * L * width, i, i < L, r, r < width, width, acc_1)
    store(DY + (B + b) * L * width, i, i < L, r, r < width, width, acc_2)


@device_function
def by_bias(DY, n, j, i, L, width, ACC: tl.constexpr):
    """U = dB (c_j + b_n) of rows (j, n) and tokens i, (j, i)."""
    condition = load(DY + L, i, i < L, j, j < L, width).to(ACC)
    vector = tl.load(DY + i * width + 2 * L + n, mask=i < L, other=0.0).to(ACC)
    return tl.trans(condition) + vector[None, :]


@triton.jit
def dynamic_weight_gradients(
    Z,
    MASK,
    INV_ROW,
    INV_COLUMN,
    DY,
    X,
    RHO,
    GAMMA,
    B,
    L,
    NE,
    HAS_MASK: tl.constexpr,
    CAUSAL: tl.constexpr,
    PRECISION: tl.constexpr,
    BI: tl.constexpr,
):
    """X (N_E, B, L, L), the gradient of M through the numerators of R^fw and R^bw; rho and gamma.

    rho (blocks of i, 2, B, N_E, L) and gamma (blocks of j and n, B, 2, L) are sums over a block.
    """
    n = tl.program_id(0) % NE
    part = tl.program_id(1)
    j = (tl.program_id(0) // NE) * BI + tl.arange(0, BI)
    i = part * BI + tl.arange(0, BI)
    b = tl.program_id(2).to(tl.int64)
    Z += b * (L + NE) * L
    MASK += b * L
    INV_COLUMN += b * 2 * L
    rows = valid_tokens(MASK, j, L, HAS_MASK)
    tokens = valid_tokens(MASK, i, L, HAS_MASK)
    width = 2 * L + NE
    DY_1 = DY + b * L * width
    DY_2 = DY + (B + b) * L * width
    inv_c_1, inv_c_2 = load_pair(INV_COLUMN, i, i < L, L)
    inv_r_1, inv_r_2 = load_pair(INV_ROW + (b * NE + n) * L, j, j < L, B * NE * L)
    back_1 = by_bias(DY_1, n, j, i, L, width, X.dtype.element_ty)
    back_2 = by_bias(DY_2, n, j, i, L, width, X.dtype.element_ty)
    for k0 in range(0, L, BI):
        k = k0 + tl.arange(0, BI)
        others = valid_tokens(MASK, k, L, HAS_MASK)
        fw_1, fw_2 = streams(forward_masked(Z, n, j, rows, k, others, L, CAUSAL))
        fw_1 *= inv_r_1[:, None]
        fw_2 *= inv_r_2[:, None]
        dW_1 = load(DY_1, i, i < L, k, k < L, width)
        dW_2 = load(DY_2, i, i < L, k, k < L, width)
        back_1 = product(fw_1, tl.trans(dW_1), back_1, DY.dtype.element_ty, PRECISION)
        back_2 = product(fw_2, tl.trans(dW_2), back_2, DY.dtype.element_ty, PRECISION)
    back_1 *= inv_c_1[None, :]
    back_2 *= inv_c_2[None, :]
    m = backward_masked(Z, n, j, rows, i, tokens, L, CAUSAL)
    p_1, p_2 = streams(m)
    at = GAMMA + (tl.program_id(0) * B + b) * 2 * L + i
    tl.store(at, total(p_1 * back_1, 0), mask=i < L)
    tl.store(at + L, total(p_2 * back_2, 0), mask=i < L)
    x = tl.where(m > 0, back_1, tl.where(m < 0, back_2, 0.0))
    # a separate loop: four accumulators at once would not stay in registers
    forth_1 = tl.full([BI, BI], 0.0, X.dtype.element_ty)
    forth_2 = tl.full([BI, BI], 0.0, X.dtype.element_ty)
    for k0 in range(0, L, BI):
        k = k0 + tl.arange(0, BI)
        others = valid_tokens(MASK, k, L, HAS_MASK)
        bw_1, bw_2 = streams(backward_masked(Z, n, j, rows, k, others, L, CAUSAL))
        share_1, share_2 = load_pair(INV_COLUMN, k, k < L, L)
        bw_1 *= share_1[None, :]
        bw_2 *= share_2[None, :]
        dW_1 = load(DY_1, k, k < L, i, i < L, width)
        dW_2 = load(DY_2, k, k < L, i, i < L, width)
        forth_1 = product(bw_1, dW_1, forth_1, DY.dtype.element_ty, PRECISION)
        forth_2 = product(bw_2, dW_2, forth_2, DY.dtype.element_ty, PRECISION)
    forth_1 *= inv_r_1[:, None]
    forth_2 *= inv_r_2[:, None]
    m = forward_masked(Z, n, j, rows, i, tokens, L, CAUSAL)
    p_1, p_2 = streams(m)
    at = RHO + ((part * 2 * B + b) * NE + n) * L + j
    tl.store(at, total(p_1 * forth_1, 1), mask=j < L)
    tl.store(at + B * NE * L, total(p_2 * forth_2, 1), mask=j < L)
    x += tl.where(m > 0, forth_1, tl.where(m < 0, forth_2, 0.0))
    store(X + (n * B + b) * L * L, j, j < L, i, i < L, L, x)


@triton.jit
def dynamic_length_gradients(
    Z,
    MASK,
    INV_ROW,
    INV_COLUMN,
    X,
    RHO,
    GAMMA,
    DA,
    DP,
    scale: tl.float64,
    num_blocks,
    B,
    L,
    NE,
    HAS_MASK: tl.constexpr,
    CAUSAL: tl.constexpr,
    BI: tl.constexpr,
):
    """dM / sqrt(d) summed over n, dA (B, L, L), and over j, dP (N_E, B, L)."""
    part = tl.program_id(0)
    j = part * BI + tl.arange(0, BI)
    i = tl.program_id(1) * BI + tl.arange(0, BI)
    b = tl.program_id(2).to(tl.int64)
    tokens = valid_tokens(MASK + b * L, i, L, HAS_MASK)
    gamma_1 = tl.full([BI], 0.0, X.dtype.element_ty)
    gamma_2 = tl.full([BI], 0.0, X.dtype.element_ty)
    for block in range(num_blocks * NE):
        one, two = load_pair(GAMMA + (block * B + b) * 2 * L, i, i < L, L)
        gamma_1 += one
        gamma_2 += two
    inv_c_1, inv_c_2 = load_pair(INV_COLUMN + b * 2 * L, i, i < L, L)
    gamma_1 *= inv_c_1
    gamma_2 *= inv_c_2
    rows = valid_tokens(MASK + b * L, j, L, HAS_MASK)
    dA = tl.full([BI, BI], 0.0, X.dtype.element_ty)
    for n in range(NE):
        dA += length_gradient(
            Z, INV_ROW, X, RHO, gamma_1, gamma_2, num_blocks, n, b, j, rows, i, tokens,
            B, L, NE, CAUSAL,
        )  # fmt: skip
    store(DA + b * L * L, j, j < L, i, i < L, L, dA * number(scale, dA.dtype))
    for n0 in range(0, NE, num_blocks):
        n = n0 + part
        if n < NE:
            dP = tl.full([BI], 0.0, X.dtype.element_ty)
            for j0 in range(0, L, BI):
                j = j0 + tl.arange(0, BI)
                rows = valid_tokens(MASK + b * L, j, L, HAS_MASK)
                dM = length_gradient(
                    Z, INV_ROW, X, RHO, gamma_1, gamma_2, num_blocks, n, b, j, rows, i, tokens,
                    B, L, NE, CAUSAL,
                )  # fmt: skip
                dP += total(dM, 0)
            at = DP + (n * B + b) * L + i
            tl.store(at, (dP * number(scale, dP.dtype)).to(DP.dtype.element_ty), mask=i < L)


@device_function
def length_gradient(
    Z,
    INV_ROW,
    X,
    RHO,
    gamma_1,
    gamma_2,
    num_blocks,
    n,
    b,
    j,
    rows,
    i,
    tokens,
    B,
    L,
    NE,
    CAUSAL: tl.constexpr,
):
    """dM of rows (j, n): s (X - [seen] rho_s / r_s - [read] gamma_s / c_s), s M's sign."""
    rho_1 = tl.full([j.shape[0]], 0.0, X.dtype.element_ty)
    rho_2 = tl.full([j.shape[0]], 0.0, X.dtype.element_ty)
    for block in range(num_blocks):
        at = RHO + ((block * 2 * B + b) * NE + n) * L
        one, two = load_pair(at, j, j < L, B * NE * L)
        rho_1 += one
        rho_2 += two
    inv_r_1, inv_r_2 = load_pair(INV_ROW + (b * NE + n) * L, j, j < L, B * NE * L)
    m = expanded(Z + b * (L + NE) * L, n, j, rows, i, tokens, L)
    x = load(X + (n * B + b) * L * L, j, j < L, i, i < L, L)
    row_1 = (rho_1 * inv_r_1)[:, None]
    row_2 = (rho_2 * inv_r_2)[:, None]
    column_1 = gamma_1[None, :]
    column_2 = gamma_2[None, :]
    if CAUSAL:
        sees = i[None, :] <= j[:, None]
        reads = j[:, None] <= i[None, :]
        row_1 = tl.where(sees, row_1, 0.0)
        row_2 = tl.where(sees, row_2, 0.0)
        column_1 = tl.where(reads, column_1, 0.0)
        column_2 = tl.where(reads, column_2, 0.0)
    plus = x - row_1 - column_1
    minus = row_2 + column_2 - x
    return tl.where(m > 0, plus, tl.where(m < 0, minus, 0.0))
