"""Static expansion, backward; the names are those of the hand-derived gradients.

Where M is positive only stream 1 has a gradient, where it is negative only stream 2: one matrix of
M's shape holds both.
"""

import triton
import triton.language as tl

from .common import load, load_pair, number, product, row_tile, sigmoid, store, streams, total


@triton.jit
def gate_gradients(DO, S, DIFFERENCE, DB, DS, size, ACC: tl.constexpr, BLOCK: tl.constexpr):
    """dB_1 and dB_2, (2, B, L, d), and dS, of the selection (v2 equation 8)."""
    x = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = x < size
    dO = tl.load(DO + x, mask=inside, other=0.0).to(ACC)
    s = tl.load(S + x, mask=inside, other=0.0).to(ACC)
    difference = tl.load(DIFFERENCE + x, mask=inside, other=0.0).to(ACC)
    gate = sigmoid(s)
    rest = sigmoid(-s)
    tl.store(DB + x, (gate * dO).to(DB.dtype.element_ty), mask=inside)
    tl.store(DB + size + x, (rest * dO).to(DB.dtype.element_ty), mask=inside)
    tl.store(DS + x, (gate * rest * difference * dO).to(DS.dtype.element_ty), mask=inside)


@triton.jit
def weight_gradients(
    M,
    INV_ROW,
    INV_COLUMN,
    TILES,
    DB,
    DW,
    E_B,
    X,
    RHO,
    PARTIAL,
    share: tl.float64,
    B,
    N,
    L,
    D,
    PRECISION: tl.constexpr,
    BN: tl.constexpr,
    BI: tl.constexpr,
    BJ: tl.constexpr,
    BK: tl.constexpr,
):
    """X, the gradient of M through the numerators of R^fw and R^bw; rho and gamma for their sums.

    dR^bw = (T + U)^T, (n, i): T = dW R^fw^T and U = dB E_B^T; dR^fw = dW^T R^bw, (n, i).
    X = dR^fw / r + share dR^bw / c; rho = sum_i dR^fw R^fw, (2, B, N);
    gamma = sum_n dR^bw R^bw by row tile.
    """
    t = tl.program_id(0)
    b = tl.program_id(1).to(tl.int64)
    n, rows, g = row_tile(TILES, t, BN)
    M += b * L
    INV_COLUMN += (g * B + b) * 2 * L
    inv_r_1, inv_r_2 = load_pair(INV_ROW + b * N, n, rows, B * N)
    rho_1 = tl.full([BN], 0.0, X.dtype.element_ty)
    rho_2 = tl.full([BN], 0.0, X.dtype.element_ty)
    for i0 in range(0, L, BI):
        i = i0 + tl.arange(0, BI)
        tokens = i < L
        back_1 = tl.full([BN, BI], 0.0, X.dtype.element_ty)
        back_2 = tl.full([BN, BI], 0.0, X.dtype.element_ty)
        for d0 in range(0, D, BK):
            d = d0 + tl.arange(0, BK)
            e = load(E_B, n, rows, d, d < D, D)
            dB_1 = load(DB + b * L * D, i, tokens, d, d < D, D)
            dB_2 = load(DB + (B + b) * L * D, i, tokens, d, d < D, D)
            back_1 = product(e, tl.trans(dB_1), back_1, DB.dtype.element_ty, PRECISION)
            back_2 = product(e, tl.trans(dB_2), back_2, DB.dtype.element_ty, PRECISION)
        for j0 in range(0, L, BJ):
            j = j0 + tl.arange(0, BJ)
            seen_1, seen_2 = streams(load(M, n.to(tl.int64), rows, j, j < L, B * L))
            seen_1 *= inv_r_1[:, None]
            seen_2 *= inv_r_2[:, None]
            dW_1 = load(DW + b * L * L, i, tokens, j, j < L, L)
            dW_2 = load(DW + (B + b) * L * L, i, tokens, j, j < L, L)
            back_1 = product(seen_1, tl.trans(dW_1), back_1, DB.dtype.element_ty, PRECISION)
            back_2 = product(seen_2, tl.trans(dW_2), back_2, DB.dtype.element_ty, PRECISION)
        z = load(M, n.to(tl.int64), rows, i, tokens, B * L)
        p_1, p_2 = streams(z)
        inv_c_1, inv_c_2 = load_pair(INV_COLUMN, i, tokens, L)
        inv_c_1 *= number(share, inv_c_1.dtype)
        inv_c_2 *= number(share, inv_c_2.dtype)
        partial = PARTIAL + (t * B + b) * 2 * L + i
        tl.store(partial, total(p_1 * back_1, 0) * inv_c_1, mask=tokens)
        tl.store(partial + L, total(p_2 * back_2, 0) * inv_c_2, mask=tokens)
        x = tl.where(z > 0, back_1 * inv_c_1[None, :], back_2 * inv_c_2[None, :])
        # a separate loop: four accumulators at once would not stay in registers
        forth_1 = tl.full([BN, BI], 0.0, X.dtype.element_ty)
        forth_2 = tl.full([BN, BI], 0.0, X.dtype.element_ty)
        for j0 in range(0, L, BJ):
            j = j0 + tl.arange(0, BJ)
            read_1, read_2 = streams(load(M, n.to(tl.int64), rows, j, j < L, B * L))
            of_j_1, of_j_2 = load_pair(INV_COLUMN, j, j < L, L)
            read_1 *= of_j_1[None, :]
            read_2 *= of_j_2[None, :]
            dW_1 = load(DW + b * L * L, j, j < L, i, tokens, L)
            dW_2 = load(DW + (B + b) * L * L, j, j < L, i, tokens, L)
            forth_1 = product(read_1, dW_1, forth_1, DB.dtype.element_ty, PRECISION)
            forth_2 = product(read_2, dW_2, forth_2, DB.dtype.element_ty, PRECISION)
        forth_1 *= number(share, inv_r_1.dtype) * inv_r_1[:, None]
        forth_2 *= number(share, inv_r_2.dtype) * inv_r_2[:, None]
        rho_1 += total(p_1 * forth_1, 1)
        rho_2 += total(p_2 * forth_2, 1)
        x += tl.where(z > 0, forth_1, forth_2)
        store(X + b * L, n.to(tl.int64), rows, i, tokens, B * L, x)
    at = RHO + b * N + n
    tl.store(at, rho_1, mask=rows)
    tl.store(at + B * N, rho_2, mask=rows)


@triton.jit
def length_gradients(
    M,
    INV_ROW,
    INV_COLUMN,
    TILES,
    X,
    RHO,
    GAMMA,
    DM,
    scale: tl.float64,
    B,
    N,
    L,
    BN: tl.constexpr,
    BI: tl.constexpr,
):
    """dM / sqrt(d) = s (X - rho_s / r_s - gamma_s / c_s), s the sign of M."""
    t = tl.program_id(0)
    b = tl.program_id(1).to(tl.int64)
    n, rows, g = row_tile(TILES, t, BN)
    rho_1, rho_2 = load_pair(RHO + b * N, n, rows, B * N)
    inv_r_1, inv_r_2 = load_pair(INV_ROW + b * N, n, rows, B * N)
    rho_1 *= inv_r_1
    rho_2 *= inv_r_2
    column = (g * B + b) * 2 * L
    for i0 in range(0, L, BI):
        i = i0 + tl.arange(0, BI)
        tokens = i < L
        z = load(M + b * L, n.to(tl.int64), rows, i, tokens, B * L)
        x = load(X + b * L, n.to(tl.int64), rows, i, tokens, B * L)
        gamma_1, gamma_2 = load_pair(GAMMA + column, i, tokens, L)
        inv_c_1, inv_c_2 = load_pair(INV_COLUMN + column, i, tokens, L)
        plus = x - rho_1[:, None] - (gamma_1 * inv_c_1)[None, :]
        minus = rho_2[:, None] + (gamma_2 * inv_c_2)[None, :] - x
        dM = tl.where(z > 0, plus, tl.where(z < 0, minus, 0.0)) * number(scale, x.dtype)
        store(DM + b * L, n.to(tl.int64), rows, i, tokens, B * L, dM)


@triton.jit
def bias_gradients(
    M,
    INV_COLUMN,
    TILES,
    DB,
    PARTIAL,
    share: tl.float64,
    B,
    N,
    L,
    D,
    sequences,
    PRECISION: tl.constexpr,
    BN: tl.constexpr,
    BI: tl.constexpr,
    BD: tl.constexpr,
):
    """dE_B = sum over sequences and streams of R_s^bw^T dB_s, in parts of ``sequences``."""
    d = tl.program_id(1) * BD + tl.arange(0, BD)
    part = tl.program_id(2)
    n, rows, g = row_tile(TILES, tl.program_id(0), BN)
    acc = tl.full([BN, BD], 0.0, M.dtype.element_ty)
    for s in range(sequences):
        b = part.to(tl.int64) * sequences + s
        for i0 in range(0, L, BI):
            i = i0 + tl.arange(0, BI)
            tokens = (i < L) & (b < B)
            read_1, read_2 = streams(load(M + b * L, n.to(tl.int64), rows, i, tokens, B * L))
            inv_c_1, inv_c_2 = load_pair(INV_COLUMN + (g * B + b) * 2 * L, i, tokens, L)
            dB_1 = load(DB + b * L * D, i, tokens, d, d < D, D)
            dB_2 = load(DB + (B + b) * L * D, i, tokens, d, d < D, D)
            read_1 *= inv_c_1[None, :]
            read_2 *= inv_c_2[None, :]
            acc = product(read_1, dB_1, acc, DB.dtype.element_ty, PRECISION)
            acc = product(read_2, dB_2, acc, DB.dtype.element_ty, PRECISION)
    PARTIAL += part.to(tl.int64) * N * D
    store(PARTIAL, n, rows, d, d < D, D, acc * number(share, acc.dtype))
