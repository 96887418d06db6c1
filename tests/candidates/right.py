"""Right candidates, as a stranger would write them: NumPy on one sequence, PyTorch on a batch."""

import numpy as np
import torch


def static_expansion(X, parameters, groups):
    """Static expansion with the two matrix products joined: R_bw (R_fw V) + R_bw E_B."""

    def linear(name):
        return X @ parameters[f"{name}.weight"].T + parameters[f"{name}.bias"]

    M = parameters["query_vectors"] @ linear("key").T / np.sqrt(X.shape[1])
    ends = np.cumsum(groups)
    gate = 1 / (1 + np.exp(-np.clip(linear("selector"), -700, 700)))
    out = 0
    for P, V, weight in (
        (np.maximum(M, 0), linear("value_1"), gate),
        (np.maximum(-M, 0), linear("value_2"), 1 - gate),
    ):
        R_fw = P / (P.sum(axis=1, keepdims=True) + 1e-9)
        R_bw = np.concatenate(
            [
                P[end - size : end].T / (P[end - size : end].sum(axis=0)[:, None] + 1e-9)
                for size, end in zip(groups, ends, strict=True)
            ],
            axis=1,
        ) / len(groups)
        out = out + weight * ((R_bw @ R_fw) @ V + R_bw @ parameters["bias_vectors"])
    return out


def static_expansion_torch(X, parameters, groups):
    """Static expansion on one sequence in PyTorch, the gate by tanh."""

    def linear(name):
        return torch.nn.functional.linear(
            X, parameters[f"{name}.weight"], parameters[f"{name}.bias"]
        )

    M = parameters["query_vectors"] @ linear("key").T / X.shape[1] ** 0.5
    gate = 0.5 * (1 + torch.tanh(linear("selector") / 2))
    out = 0
    for P, V, weight in (
        (M.relu(), linear("value_1"), gate),
        ((-M).relu(), linear("value_2"), 1 - gate),
    ):
        F = P / (P.sum(1, keepdim=True) + 1e-9) @ V + parameters["bias_vectors"]
        back = [
            of.T / (of.sum(0)[:, None] + 1e-9) @ f
            for of, f in zip(P.split(list(groups)), F.split(list(groups)), strict=True)
        ]
        out = out + weight * torch.stack(back).mean(0)
    return out


def multi_head_attention(X, Y, parameters, num_heads, causal, lengths):
    """Multi-head attention on a padded batch, by einsum."""

    def project(name, x):
        W, b = parameters[f"{name}.weight"], parameters[f"{name}.bias"]
        return (x @ W.T + b).unflatten(-1, (num_heads, -1))

    padding = torch.arange(Y.shape[1]) >= lengths[:, None]
    Y = Y.masked_fill(padding[..., None], 0)  # a weight of 0 does not hide a NaN
    Q, K, V = project("query", X), project("key", Y), project("value", Y)
    scores = torch.einsum("bmhk,bnhk->bhmn", Q, K) / Q.shape[-1] ** 0.5
    hidden = padding[:, None, None, :]
    if causal:
        hidden = hidden | torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    weights = scores.masked_fill(hidden, torch.finfo(scores.dtype).min).softmax(-1)
    heads = torch.einsum("bhmn,bnhk->bmhk", weights, V).flatten(-2)
    return heads @ parameters["out.weight"].T + parameters["out.bias"]
