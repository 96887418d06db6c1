"""The Triton programs, loaded by ``torch_impl.kernels.launch``."""

from .static_backward import bias_gradients, gate_gradients, length_gradients, weight_gradients
from .static_forward import group_sums, length_transformation, mixing_weights, selection

__all__ = [
    "bias_gradients",
    "gate_gradients",
    "group_sums",
    "length_gradients",
    "length_transformation",
    "mixing_weights",
    "selection",
    "weight_gradients",
]
