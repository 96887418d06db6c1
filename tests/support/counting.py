"""A number that counts what is done with it, to hold closed forms to the equations themselves.

Equations written with `Counted` entries in NumPy object arrays count every scalar operation that
they print. Matrix products go through `product`, which counts nothing: they are counted in
multiply-accumulates, elsewhere.
"""

import math

import numpy as np

EPSILON = 1e-9


class Counted:
    """A float; every operation on it adds one to ``Counted.operations``."""

    operations = 0

    def __init__(self, value):
        self.value = value

    def _new(self, value):
        Counted.operations += 1
        return Counted(value)

    def __add__(self, other):
        return self._new(self.value + _plain(other))

    def __sub__(self, other):
        return self._new(self.value - _plain(other))

    def __rsub__(self, other):
        return self._new(_plain(other) - self.value)

    def __mul__(self, other):
        return self._new(self.value * _plain(other))

    def __truediv__(self, other):
        return self._new(self.value / _plain(other))

    def __rtruediv__(self, other):
        return self._new(_plain(other) / self.value)

    def __neg__(self):
        return self._new(-self.value)

    def maximum(self, other):
        return self._new(max(self.value, _plain(other)))

    def exp(self):
        return self._new(math.exp(self.value))

    def log(self):
        return self._new(math.log(self.value))

    def sqrt(self):
        return self._new(math.sqrt(self.value))

    __radd__ = __add__


def _plain(number):
    return number.value if isinstance(number, Counted) else float(number)


_wrap = np.frompyfunc(Counted, 1, 1)
_unwrap = np.frompyfunc(_plain, 1, 1)
_maximum = np.frompyfunc(lambda a, b: a.maximum(b), 2, 1)


def numbers(*shape):
    """An array of that shape whose entries count."""
    return _wrap(np.random.default_rng(0).standard_normal(shape).astype(object))


def product(A, B):
    """A B without counting."""
    return _wrap((_unwrap(A).astype(float) @ _unwrap(B).astype(float)).astype(object))


def count(function, *arguments):
    """How many operations calling ``function`` does."""
    Counted.operations = 0
    function(*arguments)
    return Counted.operations


def linear(X, width):
    return product(X, numbers(X.shape[-1], width)) + numbers(width)


def relu(X):
    return _maximum(X, 0)


def sigmoid(X):
    return 1 / (np.exp(-X) + 1)


def normalise(X):
    return X / (X.sum(axis=-1, keepdims=True) + EPSILON)


def softmax(X):
    powers = np.exp(X - _maximum.reduce(X, axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def log_softmax(X):
    shifted = X - _maximum.reduce(X, axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def layer_norm(X):
    d = X.shape[-1]
    centred = X - X.sum(axis=-1, keepdims=True) / d
    variance = (centred * centred).sum(axis=-1, keepdims=True) / d
    return centred / np.sqrt(variance + 1e-5) * numbers(d) + numbers(d)


def expansion(X, Q_E, B_E, groups):
    """Equations 2 to 8 as printed, with the projections K, V_1, V_2, S."""
    d = X.shape[-1]
    K, V_1, V_2, S = (linear(X, d) for _ in range(4))
    M = product(Q_E, K.T) / math.sqrt(d)
    R_fw = [normalise(relu(signed)) for signed in (M, -M)]
    F = [product(R, V) + B_E for R, V in zip(R_fw, (V_1, V_2), strict=True)]
    edges = np.cumsum(groups)[:-1]
    R_bw = []
    for signed in (M.T, -M.T):
        parts = [normalise(relu(part)) for part in np.split(signed, edges, axis=1)]
        R = np.concatenate(parts, axis=1)
        R_bw.append(R / len(groups) if len(groups) > 1 else R)
    B = [product(R, f) for R, f in zip(R_bw, F, strict=True)]
    gate = sigmoid(S)
    return gate * B[0] + (1 - gate) * B[1]


def static_expansion(length, d, groups):
    N = sum(groups)
    return expansion(numbers(length, d), numbers(N, d), numbers(N, d), groups)


def dynamic_expansion(length, d, N_E):
    """BroadSum (equation 1), then the same equations on L N_E rows."""
    X = numbers(length, d)
    C = linear(X, d)
    Q_E, B_E = ((C[:, None] + numbers(N_E, d)[None]).reshape(length * N_E, d) for _ in range(2))
    return expansion(X, Q_E, B_E, [length * N_E])


def attention(queries, keys, d, heads, gated):
    X, Y = numbers(queries, d), numbers(keys, d)
    Q, K, V = linear(X, d), linear(Y, d), linear(Y, d)
    context = []
    for q, k, v in zip(*(np.split(Z, heads, axis=1) for Z in (Q, K, V)), strict=True):
        weights = softmax(product(q, k.T) / math.sqrt(d / heads))
        context.append(product(weights, v))
    V_hat = np.concatenate(context, axis=1)
    if not gated:
        return linear(V_hat, d)
    both = np.concatenate([V_hat, Q], axis=1)
    return linear(both, d) * sigmoid(linear(both, d))
