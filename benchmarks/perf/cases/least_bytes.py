"""Least bytes that an expansion must read and write, in closed form, for rooflines.

Every input is read once, every output written once, in the bytes of the precision. With k
projections (C for the dynamic form, K, V_1, V_2, S), a = B L d activations and N vectors of each of
q and b in float32:

* operator, forward: (k + 1) a, and the vectors;
* operator, backward: (k + 1) a read (dO too), k a written, the vectors read and their gradients
  written; the saved activations in float32, written and read once: M, B N L, if static; C K^T and q
  K^T, B L (L + N_E), if dynamic;
* layer, forward: (k + 1) a more, for x and for what the projections write, and k d^2 weights;
* layer, backward: (k + 2) a more, for x, dx and the projections' gradients read again, the weights
  read and their gradients written.

Expanded vectors (B N L d in the literal order) are left out: no implementation has to write them.
"""

from __future__ import annotations

from benchmarks.perf.cases.case import Case
from torch_impl.layers.transformer import Mixer

FLOAT32 = 4
BYTES = {"float32": 4, "tf32": 4, "bfloat16": 2, "float16": 2}


def least(case: Case, *, half: str, part: str, backward: bool) -> int:
    """Bytes read and written by one call of a static ("encoder") or dynamic ("decoder") expansion.

    0 for attention, which has no closed form here.
    """
    sizes, mixer = case.sizes, Mixer.parse(getattr(case.sizes, half))
    if mixer.attends:
        return 0
    B, d, N = sizes.batch, sizes.d_model, sum(mixer.coefficients)
    dynamic, is_layer = half == "decoder", part == "layer"
    L = sizes.tokens if dynamic else sizes.length
    k = 5 if dynamic else 4
    e = BYTES[case.precision]
    a, vectors, weights = B * L * d * e, 2 * N * d * FLOAT32, k * d * d * FLOAT32
    saved = B * L * (L + N if dynamic else N) * FLOAT32
    total = (k + 1) * a + vectors
    if is_layer:
        total += (k + 1) * a + weights
    if backward:
        total += (2 * k + 1) * a + 2 * vectors + 2 * saved
    if backward and is_layer:
        total += (k + 2) * a + 2 * weights
    return total
