"""Right candidates in PyTorch, on padded batches, as a stranger would write them."""

import torch
from torch.nn import functional as F


def linear(x, p, name):
    return F.linear(x, p[f"{name}.weight"], p[f"{name}.bias"])


def part(p, name):
    """The parameters that begin with a name."""
    return {key[len(name) + 1 :]: value for key, value in p.items() if key.startswith(name + ".")}


def valid(x, lengths):
    """(B, L, 1): which rows are no padding, of their numbers (B,) or of a mask (B, L)."""
    if lengths.dtype == torch.bool:
        return lengths[..., None]
    return (torch.arange(x.shape[1], device=x.device) < lengths[:, None])[..., None]


def static_expansion(X, parameters, groups, lengths):
    mask = valid(X, lengths)
    X = torch.where(mask, X, 0)
    K = linear(X, parameters, "key")
    M = parameters["query_vectors"] @ K.mT / X.shape[-1] ** 0.5  # (B, N, L)
    gate = torch.sigmoid(linear(X, parameters, "selector"))
    out = 0
    for sign, name, weight in ((1, "value_1", gate), (-1, "value_2", 1 - gate)):
        P = (sign * M).relu() * mask.mT
        V = linear(X, parameters, name)
        forward = P / (P.sum(2, keepdim=True) + 1e-9) @ V + parameters["bias_vectors"]
        back = [
            of.mT / (of.sum(1)[..., None] + 1e-9) @ f
            for of, f in zip(P.split(list(groups), 1), forward.split(list(groups), 1), strict=True)
        ]
        out = out + weight * torch.stack(back).mean(0)
    return out


def dynamic_expansion(X, parameters, causal, lengths):
    _, L, d = X.shape
    mask = valid(X, lengths)
    X = torch.where(mask, X, 0)
    C, K = linear(X, parameters, "condition"), linear(X, parameters, "key")
    N = len(parameters["query_vectors"])
    Q = (C[:, :, None] + parameters["query_vectors"]).flatten(1, 2)  # (B, L N, d)
    E = (C[:, :, None] + parameters["bias_vectors"]).flatten(1, 2)
    M = Q @ K.mT / d**0.5  # (B, L N, L)
    see = mask.mT & mask.repeat_interleave(N, 1)
    if causal:
        see = see & torch.ones(L, L, dtype=torch.bool).tril().repeat_interleave(N, 0)
    # a sigmoid, as fused kernels compute it
    gate = (1 + torch.tanh(linear(X, parameters, "selector") / 2)) / 2
    out = 0
    for sign, name, weight in ((1, "value_1", gate), (-1, "value_2", 1 - gate)):
        P = (sign * M).relu() * see
        forward = P / (P.sum(2, keepdim=True) + 1e-9) @ linear(X, parameters, name) + E
        # token i sees the vectors of tokens j <= i
        seen = see if not causal else backward_mask(mask, L, N)
        back = ((sign * M).relu() * seen).mT
        out = out + weight * (back / (back.sum(2, keepdim=True) + 1e-9) @ forward)
    return out


def backward_mask(mask, L, N):
    later = torch.ones(L, L, dtype=torch.bool).triu().repeat_interleave(N, 0)
    return mask.mT & mask.repeat_interleave(N, 1) & later


def attend(X, Y, p, num_heads, causal, lengths):
    """The attended values, and the queries: both (B, M, d)."""
    mask = valid(Y, lengths)
    Y = torch.where(mask, Y, 0)
    Q, K, V = linear(X, p, "query"), linear(Y, p, "key"), linear(Y, p, "value")
    q, k, v = (x.unflatten(-1, (num_heads, -1)).transpose(1, 2) for x in (Q, K, V))
    see = mask.mT[:, None]
    if causal:
        see = see & torch.ones(X.shape[1], Y.shape[1], dtype=torch.bool).tril()
    out = F.scaled_dot_product_attention(q, k, v, see)
    return out.transpose(1, 2).flatten(2), Q


def multi_head_attention(X, Y, parameters, num_heads, causal, lengths):
    return linear(attend(X, Y, parameters, num_heads, causal, lengths)[0], parameters, "out")


def attention_on_attention(X, Y, parameters, num_heads, causal, lengths):
    both = torch.cat(attend(X, Y, parameters, num_heads, causal, lengths), -1)
    gate = torch.sigmoid(linear(both, parameters, "gate"))
    return linear(both, parameters, "information") * gate


def layer_norm(X, parameters):
    return F.layer_norm(X, X.shape[-1:], parameters["weight"], parameters["bias"], 1e-5)


def feed_forward(X, parameters):
    return linear(linear(X, parameters, "linear_1").relu(), parameters, "linear_2")


def mix(X, p, mixer, num_heads, causal, lengths):
    kind, _, sizes = mixer.partition(":")
    if kind == "static":
        return static_expansion(X, p, tuple(map(int, sizes.split(","))), lengths)
    if kind == "dynamic":
        return dynamic_expansion(X, p, causal, lengths)
    attention = attention_on_attention if kind == "aoa" else multi_head_attention
    return attention(X, X, p, num_heads, causal, lengths)


def encoder_layer(X, parameters, mixer, num_heads, lengths):
    p = parameters
    X = torch.where(valid(X, lengths), X, 0)
    normed = layer_norm(X, part(p, "norm_1"))
    X = X + mix(normed, part(p, "mixer"), mixer, num_heads, False, lengths)
    if mixer == "aoa":
        return X
    return X + feed_forward(layer_norm(X, part(p, "norm_2")), part(p, "feed_forward"))


def decoder_layer(X, memory, parameters, mixer, num_heads, lengths):
    p = parameters
    attention = attention_on_attention if mixer == "aoa" else multi_head_attention
    whole = torch.full((len(X),), X.shape[1])
    normed = layer_norm(X, part(p, "norm_1"))
    X = X + mix(normed, part(p, "mixer"), mixer, num_heads, True, whole)
    normed = layer_norm(X, part(p, "norm_2"))
    X = X + attention(normed, memory, part(p, "cross_attention"), num_heads, False, lengths)
    if mixer == "aoa":
        return X
    return X + feed_forward(layer_norm(X, part(p, "norm_3")), part(p, "feed_forward"))


def reduced(outputs, p, reduction):
    x = outputs[-1]
    if reduction == "none":
        return x
    if reduction == "linear":
        x = x + linear(torch.cat(outputs, -1), p, "reduce")
    return layer_norm(x, part(p, "norm"))


def layers(parameters, of):
    found = {int(key.split(".")[2]) for key in parameters if key.startswith(f"{of}.layers.")}
    return [part(parameters, f"{of}.layers.{i}") for i in sorted(found)]


def captioner(features, tokens, parameters, encoder, decoder, num_heads, first, second):
    p = parameters
    x, outputs = linear(features[None], p, "input"), []
    lengths = torch.tensor([len(features)])
    for layer in layers(p, "encoder"):
        x = encoder_layer(x, layer, encoder, num_heads, lengths)
        outputs.append(x)
    memory = reduced(outputs, part(p, "encoder"), first)
    embedding = p["embedding.weight"]
    y = embedding[tokens] * embedding.shape[1] ** 0.5 + p["positions.weight"][: len(tokens)]
    y, outputs = y[None], []
    for layer in layers(p, "decoder"):
        y = decoder_layer(y, memory, layer, decoder, num_heads, lengths)
        outputs.append(y)
    scores = linear(reduced(outputs, part(p, "decoder"), second), p, "vocabulary")
    return scores[0].log_softmax(-1)


def cross_entropy(log_probs, targets, pad_id, label_smoothing):
    V = log_probs.shape[-1]
    smoothed = torch.full_like(log_probs, label_smoothing / (V - 1))
    smoothed.scatter_(-1, targets[..., None], 1 - label_smoothing)
    return -(smoothed * log_probs).sum(-1)[targets != pad_id].mean()


def self_critical(log_probs, mask, rewards, baseline):
    K = rewards.shape[1]
    others = rewards.sum(1, keepdim=True) - rewards
    b = others / (K - 1 if baseline == "leave_one_out" else K)
    return -((rewards - b) * (log_probs * mask).sum(-1)).mean()


def gradient_descent(theta, gradients, alpha):
    return theta - alpha * gradients.mean(0)


def clip_gradients(gradients, threshold):
    norm = torch.cat([g.flatten() for g in gradients.values()]).norm()
    scale = threshold / torch.maximum(norm, torch.full_like(norm, threshold))
    return {name: scale * g for name, g in gradients.items()}


def radam(theta, gradients, learning_rates, beta_1, beta_2, epsilon, published):
    m = v = torch.zeros_like(theta)
    rho_inf = 2 / (1 - beta_2) - 1
    out = []
    for t, (g, lr) in enumerate(zip(gradients, learning_rates, strict=True), 1):
        m = beta_1 * m + (1 - beta_1) * g
        v = beta_2 * v + (1 - beta_2) * g * g
        step = m / (1 - beta_1**t)
        rho = rho_inf - 2 * t * beta_2**t / (1 - beta_2**t)
        if rho >= 5:
            top = (rho - 4) * (rho - 2) * rho_inf
            r = (top / ((rho_inf - 4) * (rho_inf - 2) * rho)) ** 0.5
            theta = theta - lr * r * step * (1 - beta_2**t) ** 0.5 / (v.sqrt() + epsilon)
        elif published:
            theta = theta - lr * step
        out.append(theta)
    return torch.stack(out)


def sentence_log_probability(log_probs, words):
    return log_probs.gather(1, words[:, None]).sum()


def negative_log_likelihood(log_probs, words):
    return F.nll_loss(log_probs, words[1:], reduction="sum")
