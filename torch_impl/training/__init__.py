"""Training: objectives, the training loop, optimisation, process groups."""

from torch_impl.training.cross_entropy import Batch, CrossEntropyTraining
from torch_impl.training.loop import NonFiniteError, Step, Terms, TrainingLoop, data_generator
from torch_impl.training.self_critical import ImageBatch, SelfCriticalTraining

__all__ = [
    "Batch",
    "CrossEntropyTraining",
    "ImageBatch",
    "NonFiniteError",
    "SelfCriticalTraining",
    "Step",
    "Terms",
    "TrainingLoop",
    "data_generator",
]
