"""Right candidates of Middle-Out in PyTorch; attention on padded batches."""

import torch
from torch.nn import functional as F

from tests.candidates.recurrent_torch import cell
from tests.candidates.right_torch import linear, part, valid


def general_attention(h, rows, W, lengths):
    mask = valid(rows, lengths)
    rows = torch.where(mask, rows, 0)
    scores = torch.einsum("bd,de,bne->bn", h, W, rows)
    weights = scores.masked_fill(~mask[..., 0], -torch.finfo(h.dtype).max).softmax(1)
    return torch.einsum("bn,bne->be", weights, rows)


def attend(h, rows, W):
    """What a state attends to of rows; zeros if there are none."""
    return (rows @ (h @ W)).softmax(0) @ rows if len(rows) else h.new_zeros(W.shape[1])


def middle_out_step(h, c, e, memory, outputs, states, parameters, self_attention):
    p = parameters
    read = [attend(h, memory, p["W_a"])]
    if self_attention in ("output", "dual"):
        read.insert(0, attend(h, outputs, p["W_d"]))
    if self_attention in ("hidden", "dual"):
        read.append(attend(h, states, p["W_h"]))
    if self_attention != "output":
        read.insert(0, e)
    return torch.cat(cell(torch.cat(read)[None], h[None], c[None], part(p, "lstm")))


def middle_out_captioner(left, middle, right, memory, h, c, parameters, self_attention):
    E = parameters["embedding.weight"]
    start = torch.stack([h, c]), E[middle]
    halves = {"left": [left.tolist(), *start], "right": [right.tolist(), *start]}
    outputs, states = [E[middle]], []
    scores = {"left": [], "right": []}
    for k in range(max(len(left), len(right))):
        for side, (words, state, e) in halves.items():
            if k >= len(words):
                continue
            own = part(parameters, side)
            seen = torch.stack(outputs), torch.stack(states) if states else h[None][:0]
            state = middle_out_step(*state, e, memory, *seen, own, self_attention)
            scores[side].append(linear(state[0], own, "vocabulary"))
            halves[side][1:] = state, E[words[k]]
            outputs.append(E[words[k]])
            states.append(state[0])
    found = scores["left"] + scores["right"]
    return torch.stack(found).log_softmax(-1) if found else E.new_zeros(0, len(E))


def middle_out_loss(left, middle, right, *rest):
    log_p = middle_out_captioner(left, middle, right, *rest)
    return F.nll_loss(log_p, torch.cat([left, right]), reduction="sum")


def symmetric_sequence(mu, N):
    return mu - mu**2 * torch.arange(-N, N + 1, dtype=torch.float64).abs() / N


def mse(y_hat, y):
    return F.mse_loss(y_hat, y)


def symmetric_mse(y_hat):
    N = len(y_hat) // 2
    return (y_hat[:N] - y_hat.flip(0)[:N]).square().mean()
