"""Our implementation of ARNet as candidates."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from torch import Tensor

from benchmarks.verify.project.modules import call, select
from benchmarks.verify.project.recurrent import given
from torch_impl.recurrent import auto_reconstructor
from torch_impl.recurrent.auto_reconstructor import AutoReconstructor

Parameters = Mapping[str, Tensor]

mean_centroid_distance = auto_reconstructor.mean_centroid_distance
point_wise_distance = auto_reconstructor.point_wise_distance


def _errors(H: Tensor, parameters: Parameters, lengths: Tensor | None = None) -> Tensor:
    d, T = H.shape[-1], select(parameters, "lstm.")
    weights = {f"lstm.{name}": value for name, value in given(T, d).items()}
    weights |= {name: value for name, value in parameters.items() if name.startswith("fc.")}
    module = partial(AutoReconstructor, d, len(T["bias"]) // 4)
    errors: Tensor = call(module, weights, H, lengths)
    return errors


def reconstruction_loss(H: Tensor, parameters: Parameters, lengths: Tensor) -> Tensor:
    """``torch_impl.recurrent.auto_reconstructor.AutoReconstructor``."""
    return _errors(H, parameters, lengths).sum(-1)


def arnet_joint_loss(
    log_probs: Tensor, tokens: Tensor, H: Tensor, parameters: Parameters, lambda_: float
) -> Tensor:
    """``torch_impl.recurrent.auto_reconstructor.joint_loss`` of one caption."""
    nll = -log_probs.gather(1, tokens[1:, None]).sum()
    return auto_reconstructor.joint_loss(nll, _errors(H[None], parameters)[0], lambda_)
