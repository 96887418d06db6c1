"""Right candidates in NumPy, on padded batches, as a stranger would write them."""

import numpy as np


def affine(x, p, name):
    return x @ p[name + ".weight"].T + p[name + ".bias"]


def under(p, prefix):
    """The parameters below a prefix, without it."""
    return {k.removeprefix(prefix + "."): v for k, v in p.items() if k.startswith(prefix + ".")}


def psi(P):
    return P / (P.sum(-1, keepdims=True) + 1e-9)


def sigmoid(x):  # neither end overflows
    return np.exp(-np.logaddexp(0, -x))


def rows(x, lengths):
    """(B, L): which rows of (B, L, d) are valid."""
    return np.arange(x.shape[1]) < np.asarray(lengths)[:, None]


def cleaned(x, lengths):
    """Padding as zeros, since NaN times 0 is NaN."""
    return np.where(rows(x, lengths)[..., None], x, 0)


def streams(scores, X, p):
    """Of each stream: the positive part of the scores, the values and the gate."""
    gate = affine(X, p, "selector")
    for sign, name in ((1, "value_1"), (-1, "value_2")):
        yield np.maximum(sign * scores, 0), affine(X, p, name), sigmoid(sign * gate)


def static_expansion(X, parameters, groups, lengths):
    X = cleaned(X, lengths)
    starts = np.cumsum([0, *groups[:-1]])
    scores = parameters["query_vectors"] @ affine(X, parameters, "key").mT / X.shape[-1] ** 0.5
    scores = scores * rows(X, lengths)[:, None]  # (B, N, L)
    out = 0
    for P, V, gate in streams(scores, X, parameters):
        expanded = psi(P) @ V + parameters["bias_vectors"]
        sums = np.repeat(np.add.reduceat(P, starts, axis=1), groups, axis=1)
        out = out + gate * ((P / (sums + 1e-9)).mT @ expanded) / len(groups)
    return out


def dynamic_expansion(X, parameters, causal, lengths):
    X = cleaned(X, lengths)
    B, L, d = X.shape
    C, K = affine(X, parameters, "condition"), affine(X, parameters, "key")
    # vector n of token i with token j is scored c_i k_j + q_n k_j: (B, i, n, j)
    scores = (C @ K.mT)[:, :, None] + (parameters["query_vectors"] @ K.mT)[:, None]
    valid = rows(X, lengths)
    scores = scores / d**0.5 * (valid[:, :, None, None] & valid[:, None, None, :])
    past = np.tri(L, dtype=bool)[:, None] if causal else np.ones((L, 1, L), bool)
    out = 0
    for P, V, gate in streams(scores, X, parameters):
        expanded = psi(P * past) @ V[:, None] + C[:, :, None] + parameters["bias_vectors"]
        back = psi((P * past.T).reshape(B, -1, L).mT)  # token j reads the vectors of i <= j
        out = out + gate * (back @ expanded.reshape(B, -1, d))
    return out


def heads(x, num_heads):
    return x.reshape(*x.shape[:2], num_heads, -1).swapaxes(1, 2)


def attended(X, Y, p, num_heads, causal, lengths):
    """The heads side by side, and the queries."""
    Y = cleaned(Y, lengths)
    queries = affine(X, p, "query")
    q, k, v = (heads(x, num_heads) for x in (queries, affine(Y, p, "key"), affine(Y, p, "value")))
    scores = q @ k.mT / q.shape[-1] ** 0.5
    seen = rows(Y, np.maximum(lengths, 1))[:, None, None]  # of an empty sequence a row of zeros
    if causal:
        seen = seen & np.tri(*scores.shape[-2:], dtype=bool)
    scores = np.where(seen, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    values = weights @ v / weights.sum(-1, keepdims=True)
    return values.swapaxes(1, 2).reshape(queries.shape), queries


def multi_head_attention(X, Y, parameters, num_heads, causal, lengths):
    return affine(attended(X, Y, parameters, num_heads, causal, lengths)[0], parameters, "out")


def attention_on_attention(X, Y, parameters, num_heads, causal, lengths):
    both = np.concatenate(attended(X, Y, parameters, num_heads, causal, lengths), -1)
    return affine(both, parameters, "information") * sigmoid(affine(both, parameters, "gate"))


def layer_norm(X, parameters):
    centred = X - X.mean(-1, keepdims=True)
    deviation = np.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)
    return centred / deviation * parameters["weight"] + parameters["bias"]


def feed_forward(X, parameters):
    return affine(np.maximum(affine(X, parameters, "linear_1"), 0), parameters, "linear_2")


def mix(X, p, mixer, num_heads, causal, lengths):
    if mixer.startswith("static:"):
        groups = [int(size) for size in mixer.removeprefix("static:").split(",")]
        return static_expansion(X, p, groups, lengths)
    if mixer.startswith("dynamic:"):
        return dynamic_expansion(X, p, causal, lengths)
    attend = attention_on_attention if mixer == "aoa" else multi_head_attention
    return attend(X, X, p, num_heads, causal, lengths)


def normed(X, p, i):
    return layer_norm(X, under(p, f"norm_{i}"))


def encoder_layer(X, parameters, mixer, num_heads, lengths):
    p, X = parameters, cleaned(X, lengths)
    X = X + mix(normed(X, p, 1), under(p, "mixer"), mixer, num_heads, False, lengths)
    return X if mixer == "aoa" else X + feed_forward(normed(X, p, 2), under(p, "feed_forward"))


def decoder_layer(X, memory, parameters, mixer, num_heads, lengths):
    p, every = parameters, [X.shape[1]] * len(X)
    X = X + mix(normed(X, p, 1), under(p, "mixer"), mixer, num_heads, True, every)
    attend = attention_on_attention if mixer == "aoa" else multi_head_attention
    own = under(p, "cross_attention")
    X = X + attend(normed(X, p, 2), memory, own, num_heads, False, lengths)
    return X if mixer == "aoa" else X + feed_forward(normed(X, p, 3), under(p, "feed_forward"))


def stack(layer, x, memory, p, reduction, *settings):
    outputs = []
    while own := under(p, f"layers.{len(outputs)}"):
        x = layer(x, *memory, own, *settings)
        outputs.append(x)
    if reduction == "linear":
        x = x + affine(np.concatenate(outputs, -1), p, "reduce")
    return x if reduction == "none" else layer_norm(x, under(p, "norm"))


def captioner(features, tokens, parameters, encoder, decoder, num_heads, first, second):
    p, E, rest = parameters, parameters["embedding.weight"], (num_heads, [len(features)])
    x = affine(features, p, "input")[None]
    memory = stack(encoder_layer, x, [], under(p, "encoder"), first, encoder, *rest)
    y = (E[tokens] * E.shape[1] ** 0.5 + p["positions.weight"][: len(tokens)])[None]
    decoded = stack(decoder_layer, y, [memory], under(p, "decoder"), second, decoder, *rest)
    scores = affine(decoded[0], p, "vocabulary")
    scores = scores - scores.max(-1, keepdims=True)
    return scores - np.log(np.exp(scores).sum(-1, keepdims=True))


def cross_entropy(log_probs, targets, pad_id, label_smoothing):
    V = log_probs.shape[-1]
    log_probs, words = log_probs[targets != pad_id], targets[targets != pad_id]
    of_words = words[:, None] == np.arange(V)
    smoothed = np.where(of_words, 1 - label_smoothing, label_smoothing / (V - 1))
    return -(smoothed * log_probs).sum() / len(words)


def self_critical(log_probs, mask, rewards, baseline):
    K = rewards.shape[1]
    others = rewards.sum(1, keepdims=True) - rewards
    advantage = rewards - others / (K - 1 if baseline == "leave_one_out" else K)
    return -(advantage * log_probs.sum(-1, where=mask)).mean()
