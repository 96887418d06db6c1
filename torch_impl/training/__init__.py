"""Training: objectives, the loop, optimisation, process groups."""

from torch_impl.training.cross_entropy import Batch, CrossEntropyTraining
from torch_impl.training.loop import NonFiniteError, Step, Terms, Training, data_generator
from torch_impl.training.self_critical import Images, SelfCriticalTraining

__all__ = [
    "Batch",
    "CrossEntropyTraining",
    "Images",
    "NonFiniteError",
    "SelfCriticalTraining",
    "Step",
    "Terms",
    "Training",
    "data_generator",
]
