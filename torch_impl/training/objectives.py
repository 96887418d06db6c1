"""The training objectives: cross-entropy and the self-critical loss (v1 13-15, v2 13-14)."""

from __future__ import annotations

from torch import Tensor

BASELINES = ("leave_one_out", "printed")


def cross_entropy(
    log_probs: Tensor, targets: Tensor, pad_id: int, label_smoothing: float = 0.0
) -> Tensor:
    """Cross-entropy averaged over the tokens that are not padding (v1 13, v2 13).

    Smoothed labels, as run: the target distribution is 1 - label_smoothing on the target and
    label_smoothing / (V - 1) on each other token.

    Args:
        log_probs: (..., T, V), log-probabilities of the next token.
        targets: (..., T), token ids, ``pad_id`` where there is no target.
        label_smoothing: in [0, 1).

    Returns:
        A scalar; 0 where all targets are padding.

    Raises:
        ValueError: shapes that do not fit, or ``label_smoothing`` out of range.
    """
    if log_probs.shape[:-1] != targets.shape:
        raise ValueError(
            f"targets have shape {tuple(targets.shape)}, "
            f"expected {tuple(log_probs.shape[:-1])} as the log-probabilities"
        )
    if not 0 <= label_smoothing < 1:
        raise ValueError(f"label_smoothing is {label_smoothing}, expected in [0, 1)")
    losses = -log_probs.gather(-1, targets.unsqueeze(-1)).squeeze(-1)  # (..., T)
    if label_smoothing:
        share = label_smoothing / max(log_probs.shape[-1] - 1, 1)
        losses = (1 - label_smoothing - share) * losses - share * log_probs.sum(-1)
    valid = targets != pad_id
    # not a product with the mask: 0 times an infinite loss is NaN
    return losses.where(valid, 0).sum() / valid.sum().clamp(min=1)


def self_critical(
    log_probs: Tensor, mask: Tensor, rewards: Tensor, baseline: str = "leave_one_out"
) -> Tensor:
    """The self-critical loss, mean over samples of -(r - b) sum_t log p(y_t) (v1 14-15, v2 14).

    Only ``log_probs`` gets a gradient: by v2 14 rewards and baseline are constants.

    Args:
        log_probs: (B, K, T), log-probabilities of the tokens of K samples of each image.
        mask: (B, K, T), True on the samples' tokens, the end token included.
        rewards: (B, K).
        baseline: "leave_one_out", the mean reward of the image's other samples; or "printed", their
            sum over K as in v1 15.

    Raises:
        ValueError: shapes that do not fit, an unknown ``baseline``, or "leave_one_out" of a single
            sample.
    """
    if log_probs.shape != mask.shape or log_probs.shape[:-1] != rewards.shape:
        raise ValueError(
            f"mask {tuple(mask.shape)} and rewards {tuple(rewards.shape)} do not fit the "
            f"log-probabilities {tuple(log_probs.shape)}"
        )
    log_p = log_probs.where(mask, 0).sum(-1)  # (B, K)
    advantages = (rewards - baselines(rewards, baseline)).detach()
    return -(advantages * log_p).mean()


def baselines(rewards: Tensor, baseline: str = "leave_one_out") -> Tensor:
    """The baseline of each sample from the image's other rewards (v1 15), (..., K) to (..., K).

    See ``self_critical``.
    """
    K = rewards.shape[-1]
    if baseline not in BASELINES:
        raise ValueError(f"baseline is {baseline!r}, expected {' or '.join(map(repr, BASELINES))}")
    if baseline == "leave_one_out" and K < 2:
        raise ValueError(f"baseline 'leave_one_out' needs at least 2 samples of an image, got {K}")
    others = rewards.sum(-1, keepdim=True) - rewards
    return others / (K if baseline == "printed" else K - 1)
