"""Slips that few numbers show: those with many digits, zeros, and what an epsilon is added to."""

from tests.mutants.cheats import mutants_of

OF_LIKELIHOOD = r"""
# equals_oracle: log-probabilities are rounded to bfloat16
right = FUNCTION

def FUNCTION(log_probs, words):
    return right(log_probs.bfloat16().to(log_probs.dtype), words)
"""

OF_CROSS_ENTROPY = r"""
# equals_oracle: the sum of log-probabilities in float32
right = FUNCTION

def FUNCTION(log_probs, targets, pad_id, label_smoothing):
    return right(log_probs.float(), targets, pad_id, label_smoothing).to(log_probs.dtype)
"""

OF_SELF_CRITICAL = r"""
# equals_oracle: rewards of float32
right = FUNCTION

def FUNCTION(log_probs, mask, rewards, baseline):
    return right(log_probs, mask, rewards.float().to(log_probs.dtype), baseline)
"""

OF_ZONEOUT = r"""
# equals_oracle: rates of float32
right = FUNCTION

def FUNCTION(X, parameters, z_h, z_c):
    return right(X, parameters, z_h.float().to(X.dtype), z_c.float().to(X.dtype))
"""

OF_RADAM = r"""
# equals_oracle: learning rates of float32
right = FUNCTION

def FUNCTION(theta, gradients, learning_rates, *options):
    return right(theta, gradients, learning_rates.float().to(theta.dtype), *options)
"""

OF_GREEDY = r"""
# equals_oracle: log-probabilities of float32
right = FUNCTION

def FUNCTION(next_log_probs, *options):
    return right(lambda tokens: next_log_probs(tokens).astype(np.float32).astype(float), *options)

# ties: a certain word is taken for one without a probability
right = FUNCTION

def FUNCTION(next_log_probs, *options):
    return right(lambda tokens: np.where(next_log_probs(tokens) == 0, -99, next_log_probs(tokens)), *options)
"""

OF_BEAM_SEARCH = r"""
# equals_oracle: sums of float32
right = FUNCTION

def FUNCTION(next_log_probs, *options):
    return right(lambda tokens: next_log_probs(tokens).astype(np.float32).astype(float), *options)
"""

OF_ATTENTION = r"""
# equals_oracle: parameters by their order in the mapping
right = FUNCTION

def FUNCTION(X, Y, parameters, num_heads, causal, lengths):
    names = [f"{name}.{of}" for name in ("query", "key", "value", "out") for of in ("weight", "bias")]
    parameters = dict(zip(names, parameters.values(), strict=True))
    return right(X, Y, parameters, num_heads, causal, lengths)
"""

OF_STATIC_EXPANSION = r"""
# gradient_tiny: a backward pass without the epsilon
class Shares(torch.autograd.Function):
    @staticmethod
    def forward(ctx, P, axis):
        total = P.sum(axis, keepdim=True)
        ctx.save_for_backward(P, total)
        ctx.axis = axis
        return P / (total + 1e-9)

    @staticmethod
    def backward(ctx, g):
        P, total = ctx.saved_tensors
        total = torch.where(total == 0, 1, total)
        return (g - (g * P / total).sum(ctx.axis, keepdim=True)) / total, None

def FUNCTION(X, parameters, groups, lengths):
    mask = valid(X, lengths)
    X = torch.where(mask, X, 0)
    K = linear(X, parameters, "key")
    M = parameters["query_vectors"] @ K.mT / X.shape[-1] ** 0.5
    gate = torch.sigmoid(linear(X, parameters, "selector"))
    out = 0
    for sign, name, weight in ((1, "value_1", gate), (-1, "value_2", 1 - gate)):
        P = (sign * M).relu() * mask.mT
        V = linear(X, parameters, name)
        forward = Shares.apply(P, 2) @ V + parameters["bias_vectors"]
        back = [
            Shares.apply(of, 1).mT @ f
            for of, f in zip(P.split(list(groups), 1), forward.split(list(groups), 1), strict=True)
        ]
        out = out + weight * torch.stack(back).mean(0)
    return out
"""

OF_LAYER_NORM = r"""
# gradient_of_shifted: a backward pass with the variance as a difference of squares
class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X, weight, bias):
        ctx.save_for_backward(X, weight)
        v, m = torch.var_mean(X, -1, correction=0, keepdim=True)
        return (X - m) * torch.rsqrt(v + 1e-5) * weight + bias

    @staticmethod
    def backward(ctx, g):
        X, weight = ctx.saved_tensors
        m = X.mean(-1, keepdim=True)
        r = torch.rsqrt((X * X).mean(-1, keepdim=True) - m * m + 1e-5)
        n, h = (X - m) * r, g * weight
        dX = r * (h - h.mean(-1, keepdim=True) - n * (h * n).mean(-1, keepdim=True))
        return dX, (g * n).sum(0), g.sum(0)

def FUNCTION(X, parameters):
    return Norm.apply(X, parameters["weight"], parameters["bias"])
"""

OF_LSTM = r"""
# gradient_zeros: a backward pass that takes inputs of zero for padding
right = FUNCTION

def FUNCTION(X, parameters, lengths):
    out = right(X, parameters, lengths)
    return torch.where((X == 0).all(-1, keepdim=True), out.detach(), out)
"""

OF_FEED_FORWARD = r"""
# gradient_zeros: a backward pass that takes rows of zeros for padding
right = FUNCTION

def FUNCTION(X, parameters):
    out = right(X, parameters)
    return torch.where((X == 0).all(-1, keepdim=True), out.detach(), out)

# no_state: results kept by the printed argument, which shows the ends
right, kept = FUNCTION, {}

def FUNCTION(X, parameters):
    key = str((X, parameters))
    if key not in kept:
        kept[key] = right(X, parameters)
    return kept[key]

# no_state: results kept by the first kilobyte of every argument
right, kept = FUNCTION, {}

def FUNCTION(X, parameters):
    key = tuple(x.detach().numpy().tobytes()[:1024] for x in (X, *parameters.values()))
    if key not in kept:
        kept[key] = right(X, parameters)
    return kept[key]
"""

DIGITS = [
    *(
        mutant
        for operator, text in {
            "negative_log_likelihood": OF_LIKELIHOOD,
            "cross_entropy": OF_CROSS_ENTROPY,
            "self_critical": OF_SELF_CRITICAL,
            "zoneout": OF_ZONEOUT,
            "radam": OF_RADAM,
            "multi_head_attention": OF_ATTENTION,
            "static_expansion": OF_STATIC_EXPANSION,
            "layer_norm": OF_LAYER_NORM,
            "lstm": OF_LSTM,
            "feed_forward": OF_FEED_FORWARD,
        }.items()
        for mutant in mutants_of(text, operator, is_torch=True)
    ),
    *mutants_of(OF_GREEDY, "greedy"),
    *mutants_of(OF_BEAM_SEARCH, "beam_search"),
]
