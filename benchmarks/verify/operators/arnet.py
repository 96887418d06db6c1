"""ARNet: the auto-reconstructor's losses, and the discrepancy between training and inference."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.verify.cases import Array, Case
from benchmarks.verify.draw import Draw
from benchmarks.verify.operators.objectives import FINITE, UNLIKELY, draw_log_probs, exact
from benchmarks.verify.operators.operator import UNEVEN, Operator
from benchmarks.verify.operators.recurrent import GATES, ZEROS, channels, gates, steepen
from reference import auto_reconstructor, objectives
from reference.primitives import Integers, Parameters

SUM = "The sum is over t = 2 ... T: each state but the last is reconstructed from the next one."


def _states(draw: Draw) -> tuple[Array, dict[str, Array]]:
    """Hidden states and the auto-reconstructor's parameters."""
    d, d_own = channels(draw), draw.size("d_own", 4, large=(40, 130, UNEVEN))
    large = draw.regime == "huge" and draw.flag("large_H")
    H = (4096 if large else 1) * draw.array(draw.size("T", 5, large=(17, 33, 40, 144, 200)), d)
    parameters = gates(draw, d_own, d, "lstm.") | draw.linear("fc", d, d_own)
    steepen(draw, parameters["lstm.weight"][:, :d])
    if draw.choose("exact", (False,)):  # every state is the bias
        parameters["fc.weight"][:] = 0
        H[:] = parameters["fc.bias"]
    return H, parameters


def _joint(draw: Draw) -> Case:
    H, parameters = _states(draw)
    V = draw.size("V", 5, large=(130, 10_001), least=2)
    tokens = draw.words(V, len(H) + 1)
    log_probs = draw_log_probs(draw, len(H), V)
    # also near the paper's 0.01 and 0.005
    return log_probs, tokens, H, parameters, (draw.size("lambda_", 64, least=0) / 45) ** 2


def _modes(draw: Draw) -> Case:
    d, N = channels(draw), draw.size("N", 5, large=(33, 200, 999))
    U, V = draw.choose("magnitude", (1.0,)) * draw.array(2, N, d)
    U[:, 0], V[:, 0] = np.abs(U[:, 0]), np.abs(V[:, 0])  # no mean is zero, which has no cosine
    return U, V


def reconstruction_loss(H: Array, parameters: Parameters) -> float:
    """The sum of the oracle's reconstruction errors."""
    return float(np.sum(auto_reconstructor.reconstruction_errors(H, parameters)))


def joint_loss(
    log_probs: Array, tokens: Integers, H: Array, parameters: Parameters, lambda_: float
) -> float:
    """The oracle's joint loss of a caption."""
    nll = objectives.negative_log_likelihood(log_probs, tokens.tolist())
    errors = auto_reconstructor.reconstruction_errors(H, parameters)
    return auto_reconstructor.joint_loss(nll, errors, lambda_)


PARAMETERS = (
    "parameters: lstm.weight (4 d', d + d'), lstm.bias, and fc.weight (d, d'), fc.bias of the map "
    "from the auto-reconstructor's state to the decoder's."
)
MANY_IMAGES = ({"N": 992, "d": 40}, {"N": 992, "d": 130})
"""With a single channel every distance is 0."""

MODE_CASES: dict[str, tuple[dict[str, Any], str]] = {
    "one_image": ({"N": 1}, "a single image"),
    "small": ({"magnitude": 2.0**-20}, "states near zero"),
}

COSINE = (
    "The cosine distance is 1 - cos, from 0 to 2; nothing is added to norms, which may be small."
)
MODES = "U, V: (N, d), the last hidden state of N images in training and in inference mode."

OPERATORS = (
    Operator(
        "reconstruction_loss",
        ("H", "parameters"),
        "a number",
        "The sum of ||h_{t-1} - h^_{t-1}||^2 over the decoder's hidden states H: (T, d), by an "
        f"LSTM that reads them. {PARAMETERS}",
        reconstruction_loss,
        _states,
        {"arnet": (5, 6, 7)},
        conventions=(GATES, ZEROS, SUM, "The LSTM reads the first state too."),
        special={
            "one_state": ({"T": 1}, "a single state, which nothing reconstructs"),
            "two_states": ({"T": 2}, "a single reconstruction"),
        },
        regimes=("zeros", "huge"),
        extra_properties=exact(0, 1),
        by=("H", "parameters"),
        sequences=1,
        lengths=("T",),
        rows=False,
        sizes=({"T": 20, "d": 512, "d_own": 130},),
    ),
    Operator(
        "arnet_joint_loss",
        ("log_probs", "tokens", "H", "parameters", "lambda_"),
        "a number",
        "The negative log-likelihood of a caption plus lambda times its reconstruction loss. "
        "tokens: (T + 1,), the start token first. log_probs: (T, V), row t - 1 of the word "
        f"tokens[t]. H: (T, d). {PARAMETERS}",
        joint_loss,
        _joint,
        {"arnet": (5, 6, 7, 8, 9)},
        conventions=(GATES, ZEROS, SUM, "Both terms are sums over the caption, not means.", FINITE),
        special={
            "no_weight": ({"lambda_": 0}, "lambda is 0"),
            "small_weight": ({"lambda_": 1}, "lambda is 0.0005"),
            **UNLIKELY,
        },
        regimes=("zeros", "huge"),
        by=("log_probs", "H", "parameters"),
        sizes=({"T": 40, "V": 10_000, "d": 130},),
    ),
    Operator(
        "mean_centroid_distance",
        ("U", "V"),
        "a number",
        f"The cosine distance of the mean states. {MODES}",
        auto_reconstructor.mean_centroid_distance,
        _modes,
        {"arnet": (10, 11)},
        conventions=(COSINE,),
        special=MODE_CASES,
        by=("U", "V"),
        sizes=MANY_IMAGES,
    ),
    Operator(
        "point_wise_distance",
        ("U", "V"),
        "a number",
        f"The mean over images of the cosine distance of its two states. {MODES}",
        auto_reconstructor.point_wise_distance,
        _modes,
        {"arnet": (10, 12)},
        conventions=(COSINE,),
        special=MODE_CASES,
        by=("U", "V"),
        sizes=MANY_IMAGES,
    ),
)
