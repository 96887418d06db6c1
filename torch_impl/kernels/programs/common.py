"""Device functions that the programs share.

No program calls a function of ``triton.language.standard``: these are compiled or interpreted for
the whole process, depending on the environment when Triton was first imported, while this package
is loaded both ways (``torch_impl.kernels.launch``).
"""

import triton
import triton.language as tl

INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)


def device_function(function):
    """Decorator of functions that programs call: compiled, or plain Python in the interpreter."""
    return function if INTERPRETED.value else triton.jit(function)


@device_function
def number(x, dtype):
    """A scalar argument, which is passed as float64, in the dtype of what it is computed with.

    Not to be assigned: the interpreter would round it to float32.
    """
    if INTERPRETED:
        return x
    return x.to(dtype)


@device_function
def row_tile(TILES, t, BN: tl.constexpr):
    """Row tile t: BN row indices, which of them are in the tile, its group."""
    at = TILES + 3 * t
    n = tl.load(at) + tl.arange(0, BN)
    return n, n < tl.load(at + 1), tl.load(at + 2)


@device_function
def load(base, row, rows, column, columns, stride):
    """A matrix tile, zero outside ``rows`` and ``columns``; rows are ``stride`` entries apart."""
    at = base + (row * stride)[:, None] + column[None, :]
    return tl.load(at, mask=rows[:, None] & columns[None, :], other=0.0)


@device_function
def store(base, row, rows, column, columns, stride, values):
    """Write a matrix tile, as ``load`` reads it, in the dtype of ``base``."""
    at = base + (row * stride)[:, None] + column[None, :]
    tl.store(at, values.to(base.dtype.element_ty), mask=rows[:, None] & columns[None, :])


@device_function
def load_pair(base, x, inside, stride):
    """The vectors of both streams, ``stride`` entries apart, zero outside ``inside``."""
    at = base + x
    return tl.load(at, mask=inside, other=0.0), tl.load(at + stride, mask=inside, other=0.0)


@device_function
def product(a, b, acc, OPERAND: tl.constexpr, PRECISION: tl.constexpr):
    """``acc + a b`` on operands rounded to ``OPERAND``, accumulated in acc's dtype."""
    a = a.to(OPERAND)
    b = b.to(OPERAND)
    if INTERPRETED:  # NumPy, which multiplies there, has no bfloat16
        a = a.to(acc.dtype)
        b = b.to(acc.dtype)
    elif acc.dtype == tl.float64:  # of which Triton 3.6 does not compile every ``tl.dot``
        return acc + total(a[:, :, None] * b[None, :, :], 1)
    return tl.dot(a, b, acc, input_precision=PRECISION, out_dtype=acc.dtype)


@device_function
def total(x, AXIS: tl.constexpr):
    """The sum along an axis."""
    return tl.reduce(x, AXIS, tl.standard._sum_combine)


@device_function
def sigmoid(x):
    """``1 / (1 + exp(-x))`` without overflow."""
    e = tl.exp(-tl.abs(x))
    return tl.where(x >= 0, 1.0, e) / (1.0 + e)


@device_function
def streams(x):
    """ReLU(+x) and ReLU(-x), NaN where x is NaN, as in PyTorch."""
    plus = tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)
    minus = tl.maximum(-x, 0.0, propagate_nan=tl.PropagateNan.ALL)
    return plus, minus


@device_function
def valid_tokens(MASK, x, L, HAS_MASK: tl.constexpr):
    """Which tokens x exist and are valid."""
    valid = x < L
    if HAS_MASK:
        valid = valid & (tl.load(MASK + x, mask=valid, other=0) != 0)
    return valid


@device_function
def expanded(Z, n, j, rows, i, tokens, L):
    """M of rows (j, n), for one n, and tokens i: A[j, i] + P[n, i], zero outside."""
    vector = tl.load(Z + (L + n) * L + i, mask=tokens, other=0.0)
    return tl.where(rows[:, None], load(Z, j, rows, i, tokens, L) + vector[None, :], 0.0)


@device_function
def forward_masked(Z, n, j, rows, i, tokens, L, CAUSAL: tl.constexpr):
    """``expanded``, zero where rows (j, n) do not gather from tokens i."""
    m = expanded(Z, n, j, rows, i, tokens, L)
    if CAUSAL:
        m = tl.where(i[None, :] <= j[:, None], m, 0.0)
    return m


@device_function
def backward_masked(Z, n, j, rows, i, tokens, L, CAUSAL: tl.constexpr):
    """``expanded``, zero where tokens i do not read rows (j, n) back."""
    m = expanded(Z, n, j, rows, i, tokens, L)
    if CAUSAL:
        m = tl.where(j[:, None] <= i[None, :], m, 0.0)
    return m


@device_function
def mixed(C, V_1, V_2, E_B, r, d, L, NE, D):
    """Rows r of [V_1; C; b] and of [V_2; C; b], channels d."""
    c = load(C, r - L, (r >= L) & (r < 2 * L), d, d < D, D)
    e = load(E_B, r - 2 * L, (r >= 2 * L) & (r < 2 * L + NE), d, d < D, D)
    v_1 = load(V_1, r, r < L, d, d < D, D)
    v_2 = load(V_2, r, r < L, d, d < D, D)
    own = r[:, None] < L
    shared = tl.where(r[:, None] < 2 * L, c, e)
    return tl.where(own, v_1, shared), tl.where(own, v_2, shared)
