"""Checkpoints: our own and the authors' released ones; ONNX export."""

from torch_impl.checkpoints.checkpoint import (
    Checkpoint,
    load,
    save,
)
from torch_impl.checkpoints.released import (
    load_released,
)

__all__ = ["Checkpoint", "load", "load_released", "save"]
