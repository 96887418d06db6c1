"""Training: objectives, the loop, optimisation, process groups."""

from torch_impl.training.loop import (
    Step,
    Terms,
    Training,
)
from torch_impl.training.objective_training import (
    Batch,
    CrossEntropyTraining,
    Images,
    SelfCriticalTraining,
)

__all__ = [
    "Batch",
    "CrossEntropyTraining",
    "Images",
    "SelfCriticalTraining",
    "Step",
    "Terms",
    "Training",
]
