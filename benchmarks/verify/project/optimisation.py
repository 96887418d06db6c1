"""Our optimisers and learning rate schedules as candidates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from torch_impl.training import optimisation


def gradient_descent(theta: Tensor, gradients: Tensor, alpha: float) -> Tensor:
    """``torch.optim.SGD`` with the mean gradient of the examples."""
    theta = theta.clone()
    theta.grad = gradients.mean(0)
    torch.optim.SGD([theta], lr=alpha).step()
    return theta


def clip_gradients(gradients: Mapping[str, Tensor], threshold: float) -> dict[str, Tensor]:
    """``torch_impl.training.optimisation.clip_gradients``."""
    clipped = {name: gradient.clone() for name, gradient in gradients.items()}
    optimisation.clip_gradients(list(clipped.values()), threshold)
    return clipped


def radam(
    theta: Tensor,
    gradients: Tensor,
    learning_rates: Tensor,
    beta_1: float,
    beta_2: float,
    epsilon: float,
    published: bool,
) -> Tensor:
    """``torch_impl.training.optimisation.RAdam``, or PyTorch's if ``published``."""
    theta = theta.clone()
    algorithm = torch.optim.RAdam if published else optimisation.RAdam
    optimiser = algorithm([theta], betas=(beta_1, beta_2), eps=epsilon)
    trajectory = []
    for gradient, lr in zip(gradients, learning_rates.tolist(), strict=True):
        theta.grad = gradient
        optimiser.param_groups[0]["lr"] = lr
        optimiser.step()
        trajectory.append(theta.clone())
    return torch.stack(trajectory)


SCHEDULE = ("lr", "warmup", "batches_per_epoch", "anneal", "anneal_every", "floor")


def hyperbolic_warmup(iteration: int, *options: Any) -> float:
    """``torch_impl.training.optimisation.hyperbolic_warmup``."""
    return optimisation.hyperbolic_warmup(iteration, **dict(zip(SCHEDULE, options, strict=True)))


def linear_warmup(iteration: int, *options: Any) -> float:
    """``torch_impl.training.optimisation.linear_warmup``, which has no floor."""
    return optimisation.linear_warmup(iteration, **dict(zip(SCHEDULE, options, strict=False)))
