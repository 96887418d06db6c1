"""Captioners: image features in, log-probabilities of the next word out."""

from torch_impl.models.captioner import (
    Captioner,
    Configuration,
    ExpansionNet,
    expansionnet_v1,
    expansionnet_v2,
    transformer,
    transformer_aoa,
)

__all__ = [
    "Captioner",
    "Configuration",
    "ExpansionNet",
    "expansionnet_v1",
    "expansionnet_v2",
    "transformer",
    "transformer_aoa",
]
