"""The expansion mechanism (ExpansionNet v1 equations 3-9, v2 equations 1-9), batched.

Tokens are (B, L, d). The static form expands to N learned vectors, in groups (Block Static
Expansion); the dynamic form to N_E vectors for every token, row (j, n) at j * N_E + n. Stream 1
takes +M and stream 2 takes -M.

Symbols are v2's: E_Q and E_B are the learned vectors, Q_E and B_E the expanded rows; v1 swaps these
names.

``functional`` chooses between ``literal``, the papers' order of operations, ``factored``, the same
function in fewer operations and bytes, and the Triton kernels of ``torch_impl.kernels``.
"""

from torch_impl.common.precision import EPSILON
from torch_impl.expansion.functional import dynamic_expansion, static_expansion
from torch_impl.expansion.layers import DynamicExpansion, StaticExpansion
from torch_impl.expansion.literal import broad_sum, length_transformation, normalise

__all__ = [
    "EPSILON",
    "DynamicExpansion",
    "StaticExpansion",
    "broad_sum",
    "dynamic_expansion",
    "length_transformation",
    "normalise",
    "static_expansion",
]
