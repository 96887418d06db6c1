"""The optimisers, the learning rate schedules, and the papers' optimisation settings.

Iterations count the updates already made: the first update has iteration 0.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, overload

import torch
from torch import Tensor

from torch_impl.expansion.functional import check_dropout


class RAdam(torch.optim.Optimizer):
    """Rectified Adam (Liu et al. 2019) as the papers' runs used it.

    While the rectification is undefined (rho_t below 5: steps 1 to 5 with beta_2 = 0.98) only the
    moments are updated, where the published algorithm and ``torch.optim.RAdam`` take a momentum
    step. From then on all make the same update from the same moments. The defaults are the runs'.

    Args:
        lr: >= 0.
        betas: decays of the first and second moments, each in [0, 1).
        eps: added to the root of the second moment before its bias is corrected, >= 0.

    Raises:
        ValueError: an argument out of its range.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 2e-4,
        betas: tuple[float, float] = (0.9, 0.98),
        eps: float = 1e-9,
    ) -> None:
        if lr < 0:
            raise ValueError(f"lr is {lr}, expected at least 0")
        if not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"betas are {betas}, expected each in [0, 1)")
        if 2 / (1 - betas[1]) - 1 <= 5:
            raise ValueError(f"beta_2 is {betas[1]}, expected above 2/3: else no step is rectified")
        if eps < 0:
            raise ValueError(f"eps is {eps}, expected at least 0")
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps})

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """One update of every parameter that has a gradient.

        Raises:
            ValueError: a gradient is sparse.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for t, parameters in self._by_step(group["params"]).items():
                self._update(parameters, t, group["lr"], group["betas"], group["eps"])
        return loss

    def _by_step(self, parameters: list[Tensor]) -> dict[int, list[Tensor]]:
        """The parameters that have a gradient, by the number t of their update, from 1."""
        by_step = defaultdict(list)
        for parameter in parameters:
            if parameter.grad is None:
                continue
            if parameter.grad.is_sparse:
                raise ValueError("RAdam takes dense gradients, got a sparse one")
            state = self.state[parameter]
            if not state:
                state["step"] = 0
                state["exp_avg"] = torch.zeros_like(parameter)
                state["exp_avg_sq"] = torch.zeros_like(parameter)
            state["step"] += 1
            by_step[state["step"]].append(parameter)
        return by_step

    def _update(
        self, thetas: list[Tensor], t: int, lr: float, betas: tuple[float, float], eps: float
    ) -> None:
        """Update ``t`` of ``thetas``, each operation on all tensors at once."""
        beta_1, beta_2 = betas
        gradients = [theta.grad for theta in thetas if theta.grad is not None]
        m = [self.state[theta]["exp_avg"] for theta in thetas]
        v = [self.state[theta]["exp_avg_sq"] for theta in thetas]
        torch._foreach_lerp_(m, gradients, 1 - beta_1)
        torch._foreach_mul_(v, beta_2)
        torch._foreach_addcmul_(v, gradients, gradients, 1 - beta_2)
        r = rectification(t, beta_2)
        if r is not None:
            rate = lr * r * math.sqrt(1 - beta_2**t) / (1 - beta_1**t)
            roots = torch._foreach_sqrt(v)
            torch._foreach_add_(roots, eps)
            torch._foreach_addcdiv_(thetas, m, roots, -rate)


def rectification(t: int, beta_2: float) -> float | None:
    """r_t of Liu et al. 2019 at step t = 1, 2, ..., or None where it is undefined (rho_t < 5)."""
    rho_inf = 2 / (1 - beta_2) - 1
    rho = rho_inf - 2 * t * beta_2**t / (1 - beta_2**t)
    if rho < 5:
        return None
    return math.sqrt((rho - 4) * (rho - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho))


def hyperbolic_warmup(
    iteration: int,
    *,
    lr: float,
    warmup: int,
    batches_per_epoch: int,
    anneal: float,
    anneal_every: int,
    floor: float = 5e-7,
) -> float:
    """The learning rate as run: lr / max(w - it, 1), annealed; at least ``floor`` from w on.

    The rise is hyperbolic: half way through w = 10,000 the rate is lr / 5,000. ``anneal`` is a
    factor for every ``anneal_every`` epochs, counted from the first iteration.
    """
    rate = lr / max(warmup - iteration, 1)
    rate *= anneal ** (iteration // (batches_per_epoch * anneal_every))
    return max(rate, floor) if iteration >= warmup else rate


def linear_warmup(
    iteration: int,
    *,
    lr: float,
    warmup: int,
    batches_per_epoch: int,
    anneal: float,
    anneal_every: int,
) -> float:
    """The learning rate as the papers' text has it: "warm-up", "annealed by 0.8 every 2 epochs".

    It rises linearly to ``lr`` at the ``warmup``-th update; annealed as in ``hyperbolic_warmup``.
    """
    rate = lr * min((iteration + 1) / max(warmup, 1), 1.0)
    return rate * anneal ** (iteration // (batches_per_epoch * anneal_every))


SCHEDULES: dict[str, Callable[..., float]] = {
    "hyperbolic": hyperbolic_warmup,
    "linear": linear_warmup,
}


@torch.no_grad()
def clip_gradients(gradients: Sequence[Tensor], threshold: float | None) -> Tensor:
    """Scale all gradients, in place, to the norm ``threshold`` if their joint norm reaches it.

    The listing "gradient clipping" of the read-only LSTM's paper. PyTorch's own adds 1e-6 to the
    norm.

    Args:
        gradients: on one device.
        threshold: above 0; None for no limit.

    Returns:
        Their total norm before clipping, on their device. If it is not finite, nothing is scaled.

    Raises:
        ValueError: a threshold that is not above 0.
    """
    if threshold is not None and not threshold > 0:
        raise ValueError(f"threshold is {threshold}, expected above 0")
    norm = torch.nn.utils.get_total_norm(gradients)
    if threshold is not None and gradients:
        larger = (threshold <= norm) & norm.isfinite()
        factor = torch.where(larger, threshold / norm.double(), 1.0)
        torch._foreach_mul_(list(gradients), factor)
    return norm


_BETAS = 0.9, 0.98
ALGORITHMS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "radam": partial(torch.optim.RAdam, betas=_BETAS, eps=1e-9),
    "radam-as-run": partial(RAdam, betas=_BETAS, eps=1e-9),
    "adam": torch.optim.Adam,
    "sgd": torch.optim.SGD,
}
"""ExpansionNet's RAdam with its papers' betas, as published (Liu et al. 2019) and as run; the Adam
of ARNet and Middle-Out; the gradient descent of the read-only LSTM (19)."""


@dataclass(frozen=True)
class Optimisation:
    """Hyperparameters of a training; ``dataclasses.replace`` overrides a field.

    Args:
        lr: the learning rate at the end of the warm-up.
        warmup: in updates; 0 for none.
        schedule: a name in ``SCHEDULES``.
        anneal: factor on the learning rate every ``anneal_every`` epochs.
        batch_size: in captions.
        label_smoothing: probability moved from the target to all other words.
        dropout_of: what an expansion drops in its forward step: expanded "values", as run, or whole
            "vectors".
        algorithm: a name in ``ALGORITHMS``.
        clip: the largest norm of a gradient; None for no limit.

    Raises:
        ValueError: a field out of its range.
    """

    lr: float
    warmup: int
    schedule: str
    anneal: float
    anneal_every: int
    epochs: int
    batch_size: int
    label_smoothing: float
    dropout: float
    algorithm: str
    dropout_of: str = "values"
    clip: float | None = None

    def __post_init__(self) -> None:
        for name in ("anneal_every", "epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, expected at least 1")
        for name in ("label_smoothing", "dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, expected in [0, 1)")
        check_dropout(self.dropout, self.dropout_of)
        if not (0 < self.lr < math.inf):
            raise ValueError(f"lr is {self.lr}, expected more than 0")
        if not 0 < self.anneal <= 1:
            raise ValueError(f"anneal is {self.anneal}, expected in (0, 1]")
        if self.warmup < 0:
            raise ValueError(f"warmup is {self.warmup}, expected at least 0")
        if self.schedule not in SCHEDULES:
            raise ValueError(f"schedule is {self.schedule!r}, expected {' or '.join(SCHEDULES)}")
        if self.algorithm not in ALGORITHMS:
            raise ValueError(f"algorithm is {self.algorithm!r}, expected {' or '.join(ALGORITHMS)}")
        if self.clip is not None and not self.clip > 0:
            raise ValueError(f"clip is {self.clip}, expected more than 0")

    def learning_rate(self, iteration: int, batches_per_epoch: int) -> float:
        """The learning rate of update ``iteration``, from 0."""
        return SCHEDULES[self.schedule](
            iteration,
            lr=self.lr,
            warmup=self.warmup,
            batches_per_epoch=batches_per_epoch,
            anneal=self.anneal,
            anneal_every=self.anneal_every,
        )

    @property
    def idle_updates(self) -> int:
        """The number of first updates that change no parameter: of RAdam as run."""
        if self.algorithm != "radam-as-run":
            return 0
        _, beta_2 = _BETAS
        return next(t for t in itertools.count() if rectification(t + 1, beta_2) is not None)

    def optimiser(self, parameters: Iterable[Any]) -> torch.optim.Optimizer:
        """A new optimiser; its learning rate must be set before each update."""
        return ALGORITHMS[self.algorithm](parameters, lr=self.lr)


# v1 section 4.3, the fast convergence step ("approximately 12 epochs"); v2 section IV-A3, step A.
# The papers state no dropout, label smoothing or form of the warm-up: we take the Transformer's
# 0.1, none, and linear.
_V2_PAPER = Optimisation(
    lr=2e-4,
    warmup=10_000,
    schedule="linear",
    anneal=0.8,
    anneal_every=2,
    epochs=8,
    batch_size=48,
    label_smoothing=0.0,
    dropout=0.1,
    algorithm="radam",
)
_V2_AS_RUN = replace(
    _V2_PAPER, schedule="hyperbolic", label_smoothing=0.1, dropout=0.3, algorithm="radam-as-run"
)

OPTIMISATION_PRESETS: dict[str, Optimisation] = {
    "v1-paper": replace(_V2_PAPER, epochs=12),
    "v1-as-run": replace(_V2_AS_RUN, warmup=20_000, epochs=25),
    "v2-paper": _V2_PAPER,
    "v2-as-run": _V2_AS_RUN,
}
"""Cross-entropy with a frozen backbone on COCO (about 11,800 batches an epoch), by each paper's
text and as run. Override ``warmup`` and ``epochs`` for smaller data."""
