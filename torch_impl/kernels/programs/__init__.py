"""The Triton programs, loaded by ``torch_impl.kernels.launch``."""

from .dynamic_backward import (
    dynamic_length_gradients,
    dynamic_mix_gradients,
    dynamic_weight_gradients,
)
from .dynamic_forward import dynamic_lengths, dynamic_selection, dynamic_sums, dynamic_weights
from .static_backward import bias_gradients, gate_gradients, length_gradients, weight_gradients
from .static_forward import group_sums, length_transformation, mixing_weights, selection

__all__ = [
    "bias_gradients",
    "dynamic_length_gradients",
    "dynamic_lengths",
    "dynamic_mix_gradients",
    "dynamic_selection",
    "dynamic_sums",
    "dynamic_weight_gradients",
    "dynamic_weights",
    "gate_gradients",
    "group_sums",
    "length_gradients",
    "length_transformation",
    "mixing_weights",
    "selection",
    "weight_gradients",
]
