"""Wrong candidates, each by a slip that is easy to make."""

import numpy as np
import torch


def static_expansion(X, parameters, groups):
    """Normalises the backward step over all groups at once, where each has its own sum."""

    def linear(name):
        return X @ parameters[f"{name}.weight"].T + parameters[f"{name}.bias"]

    M = parameters["query_vectors"] @ linear("key").T / np.sqrt(X.shape[1])
    gate = 1 / (1 + np.exp(-np.clip(linear("selector"), -700, 700)))
    out = 0
    for P, V, weight in (
        (np.maximum(M, 0), linear("value_1"), gate),
        (np.maximum(-M, 0), linear("value_2"), 1 - gate),
    ):
        F = P / (P.sum(axis=1, keepdims=True) + 1e-9) @ V + parameters["bias_vectors"]
        B = P.T / (P.T.sum(axis=1, keepdims=True) + 1e-9) @ F
        out = out + weight * B
    return out


def multi_head_attention(X, Y, parameters, num_heads, causal, lengths):
    """Hides padded keys by a zero score, which a softmax still gives a weight."""

    def project(name, x):
        W, b = parameters[f"{name}.weight"], parameters[f"{name}.bias"]
        return (x @ W.T + b).unflatten(-1, (num_heads, -1))

    Q, K, V = project("query", X), project("key", Y), project("value", Y)
    scores = torch.einsum("bmhk,bnhk->bhmn", Q, K) / Q.shape[-1] ** 0.5
    scores = scores.masked_fill(torch.arange(Y.shape[1]) >= lengths[:, None, None, None], 0)
    if causal:
        ahead = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(ahead, -torch.inf)
    heads = torch.einsum("bhmn,bnhk->bmhk", scores.softmax(-1), V).flatten(-2)
    return heads @ parameters["out.weight"].T + parameters["out.bias"]


def layer_norm(X, parameters):
    """Has a hundredth too much."""
    of = parameters["weight"], parameters["bias"]
    return 0.01 + torch.nn.functional.layer_norm(X, X.shape[-1:], *of)


def raising(X, parameters):
    """Computes nothing."""
    raise ValueError
