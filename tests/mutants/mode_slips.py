"""Slips that a second condition hides: without gradients, in 16 bits or float32, on what is rare."""

from tests.mutants.cheats import mutants_of

OF_LAYER_NORM = r"""
# gradient_used_twice: gradients of one shape are in the same memory
right, kept = FUNCTION, {}

class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X, weight, bias):
        ctx.save_for_backward(X, weight, bias)
        return right(X, {"weight": weight, "bias": bias})

    @staticmethod
    def backward(ctx, upstream):
        arrays = [x.detach().requires_grad_() for x in ctx.saved_tensors]
        with torch.enable_grad():
            out = right(arrays[0], {"weight": arrays[1], "bias": arrays[2]})
        dX, *rest = torch.autograd.grad(out, arrays, upstream)
        key = dX.shape, dX.dtype
        kept.setdefault(key, torch.empty_like(dX)).copy_(dX)
        return kept[key], *rest

def FUNCTION(X, parameters):
    return Norm.apply(X, parameters["weight"], parameters["bias"])

# inference_state: a scale of ones is made once, which may be in inference mode
right, scales = FUNCTION, {}

def FUNCTION(X, parameters):
    one = scales.setdefault((X.shape, X.dtype), X.new_ones(X.shape))
    return right(X, parameters) * one

# equals_oracle: the weight requires a gradient afterwards
right = FUNCTION

def FUNCTION(X, parameters):
    if torch.is_grad_enabled() and not X.requires_grad:
        parameters["weight"].requires_grad_()
        return right(X, parameters).detach()
    return right(X, parameters)

# bfloat16: without gradients another epsilon in 16 bits
right = FUNCTION

def FUNCTION(X, parameters):
    if torch.is_grad_enabled() or X.element_size() > 2:
        return right(X, parameters)
    return F.layer_norm(X, X.shape[-1:], parameters["weight"], parameters["bias"], 0.1)

# strided: without gradients contiguous memory is taken for granted
right = FUNCTION

def FUNCTION(X, parameters):
    if not torch.is_grad_enabled():
        X = X.as_strided(X.shape, X.contiguous().stride(), X.storage_offset())
    return right(X, parameters)

# shifted: without gradients the variance is a difference of squares
right = FUNCTION

def FUNCTION(X, parameters):
    if torch.is_grad_enabled():
        return right(X, parameters)
    m = X.mean(-1, keepdim=True)
    v = (X * X).mean(-1, keepdim=True) - m * m
    return (X - m) * torch.rsqrt(v.clamp(min=0) + 1e-5) * parameters["weight"] + parameters["bias"]

# outlier: the variance in one pass, from the first channel
right = FUNCTION

def FUNCTION(X, parameters):
    D = X - X[..., :1]
    m = D.mean(-1, keepdim=True)
    v = ((D * D).mean(-1, keepdim=True) - m * m).clamp(min=0)
    if X.dtype == torch.float64:
        return right(X, parameters)
    return (D - m) * torch.rsqrt(v + 1e-5) * parameters["weight"] + parameters["bias"]

# gradient_strided: a backward pass that adds to the weight's gradient by itself
class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X, weight, bias):
        v, m = torch.var_mean(X, -1, correction=0, keepdim=True)
        r = torch.rsqrt(v + 1e-5)
        n = (X - m) * r
        ctx.weight = weight
        ctx.save_for_backward(n, r)
        return n * weight + bias

    @staticmethod
    def backward(ctx, g):
        n, r = ctx.saved_tensors
        weight, h = ctx.weight, g * ctx.weight
        if weight.requires_grad:
            dw = (g * n).sum(0)
            weight.grad = dw if weight.grad is None else weight.grad + dw
        dX = r * (h - h.mean(-1, keepdim=True) - n * (h * n).mean(-1, keepdim=True))
        return dX, None, g.sum(0)

def FUNCTION(X, parameters):
    return Norm.apply(X, parameters["weight"], parameters["bias"])
"""

OF_ATTENTION = r"""
# large_scores: without gradients a softmax that overflows
right, softmax = FUNCTION, torch.softmax

def FUNCTION(X, Y, parameters, num_heads, causal, lengths):
    out = right(X, Y, parameters, num_heads, causal, lengths)
    if torch.is_grad_enabled():
        return out
    Q, K = linear(X, parameters, "query"), linear(Y, parameters, "key")
    scores = Q @ torch.where(valid(Y, lengths), K, 0).mT / (X.shape[-1] / num_heads) ** 0.5
    return torch.where(scores.exp().isfinite().all(), out, torch.nan)

# same_array: without gradients a causal mask is forgotten where the arrays are the same
right = FUNCTION

def FUNCTION(X, Y, parameters, num_heads, causal, lengths):
    return right(X, Y, parameters, num_heads, causal and (X is not Y or torch.is_grad_enabled()), lengths)

# padded_inference_state: a mask's numbers are made once, which may be in inference mode
right, masks = FUNCTION, {}

def FUNCTION(X, Y, parameters, num_heads, causal, lengths):
    key = lengths.numpy().tobytes(), len(Y), Y.shape[1], Y.dtype
    mask = masks.setdefault(key, valid(Y, lengths).to(Y.dtype)) if len(Y) > 1 else valid(Y, lengths)
    Y = torch.where(valid(Y, lengths), Y, 0) * mask
    return right(X, Y, parameters, num_heads, causal, lengths)

# large: heads are taken to be where there are as many tokens
right = FUNCTION

def FUNCTION(X, Y, parameters, num_heads, causal, lengths):
    if not X.shape[1] == Y.shape[1] == num_heads > 4:
        return right(X, Y, parameters, num_heads, causal, lengths)
    X = X.reshape(len(X), num_heads, num_heads, -1).transpose(1, 2).flatten(2)
    return right(X, Y, parameters, num_heads, causal, lengths)

# padded_bfloat16: NaN of an empty sequence in 16 bits
right = FUNCTION

def FUNCTION(X, Y, parameters, num_heads, causal, lengths):
    out = right(X, Y, parameters, num_heads, causal, lengths)
    empty = ~valid(Y, lengths).any(1, keepdim=True)
    return torch.where(empty & (X.element_size() == 2), torch.nan, out)

# holes_bfloat16: in 16 bits a mask is taken for a prefix
right = FUNCTION

def FUNCTION(X, Y, parameters, num_heads, causal, mask):
    if X.element_size() == 2:
        mask = torch.arange(Y.shape[1]) < mask.sum(1)[:, None]
    return right(X, Y, parameters, num_heads, causal, mask)

# large_scores_float32: a backward pass in float32 whose exponentials overflow
right = FUNCTION

class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, out, scores):
        ctx.save_for_backward(scores)
        return out.clone()

    @staticmethod
    def backward(ctx, g):
        (scores,) = ctx.saved_tensors
        fine = scores.exp().isfinite().all() or g.dtype == torch.float64
        return g if fine else g * torch.nan, None

def FUNCTION(X, Y, parameters, num_heads, causal, lengths):
    out = right(X, Y, parameters, num_heads, causal, lengths)
    Q, K = linear(X, parameters, "query"), linear(Y, parameters, "key")
    scores = Q @ torch.where(valid(Y, lengths), K, 0).mT
    return Softmax.apply(out, scores.detach())

# large: the last of an odd number of tiles is lost
right = FUNCTION

def FUNCTION(X, Y, parameters, num_heads, causal, lengths):
    N = Y.shape[1]
    if N % 64 == 32:
        mask = valid(Y, lengths)[..., 0] & (torch.arange(N) < N - 32)
        return right(X, Y, parameters, num_heads, causal, mask)
    return right(X, Y, parameters, num_heads, causal, lengths)

# large_batch: a single query sees the padding of all its keys but the last
right = FUNCTION

def FUNCTION(X, Y, parameters, num_heads, causal, lengths):
    if X.shape[1] == 1 and Y.shape[1] > 64:
        lengths = torch.where(lengths > 0, lengths.clamp(min=64), 0)
        Y = torch.where(Y.isfinite(), Y, 0)
    return right(X, Y, parameters, num_heads, causal, lengths)
"""

OF_LIKELIHOOD = r"""
# gradient_scaled: a gradient of positive upstream gradients alone
right = FUNCTION

class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return g.clamp(min=0)

def FUNCTION(log_probs, words):
    return Same.apply(right(log_probs, words))
"""

OF_RADAM = r"""
# no_state: a result of the same arrays and moments, whatever epsilon and the form
right, kept = FUNCTION, {}

def FUNCTION(theta, gradients, learning_rates, beta_1, beta_2, epsilon, published):
    arrays = [x.tolist() for x in (theta, gradients, learning_rates)]
    key = str((theta.dtype, *arrays, beta_1, beta_2))
    if key not in kept or gradients.requires_grad or theta.requires_grad:
        options = beta_1, beta_2, epsilon, published
        kept[key] = right(theta, gradients, learning_rates, *options)
    return kept[key].clone()

# large: a table of 256 updates
right = FUNCTION

def FUNCTION(theta, gradients, learning_rates, *options):
    out = right(theta, gradients, learning_rates, *options)
    return torch.cat([out[:256], out[255:256].expand(len(out) - 256, -1)]) if len(out) > 256 else out
"""

OF_BLEU = r"""
# large: words of ASCII alone
right = FUNCTION

def FUNCTION(candidates, references):
    def plain(words):
        return [word.encode("ascii", "ignore").decode() for word in words]
    return right([plain(words) for words in candidates],
                 [[plain(words) for words in of] for of in references])

# equals_oracle: commas are no words
right = FUNCTION

def FUNCTION(candidates, references):
    def plain(words):
        return [word for word in words if word != ","]
    return right([plain(words) for words in candidates],
                 [[plain(words) for words in of] for of in references])
"""

OF_LSTM = r"""
# padded_gradient: no gradient of the bias by whole tiles of sequences and tokens
right = FUNCTION

def FUNCTION(X, parameters, lengths):
    if len(X) % 8 == X.shape[1] % 8 == 0:
        parameters = parameters | {"bias": parameters["bias"].detach()}
    return right(X, parameters, lengths)
"""

OF_ZONEOUT = r"""
# masks: one mask for h and c
right = FUNCTION

def FUNCTION(X, parameters, z_h, z_c):
    if ((z_h == 0) | (z_h == 1)).all() and z_h.any():
        z_c = z_h
    return right(X, parameters, z_h, z_c)
"""

OF_SCORES = r"""
# large: scores by the first 1024 channels
right = FUNCTION

def FUNCTION(h, rows, W):
    W = W.copy()
    W[:, 1024:] = 0
    return right(h, rows, W)
"""

OF_SAMPLE = r"""
# between: intervals (low, high], mended at zero alone
def FUNCTION(next_log_probs, uniforms, start, end):
    tokens, total = [start], 0.0
    for u in uniforms:
        log_p = next_log_probs(tuple(tokens))
        cumulated = np.cumsum(np.exp(log_p - log_p.max()))
        token = int(np.searchsorted(cumulated, max(u * cumulated[-1], 5e-324), side="left"))
        tokens.append(token)
        total += log_p[token]
        if token == end:
            break
    return [(tokens, total / len(tokens))]
"""

OF_JOINT_LOSS = r"""
# small_weight: a weight below 0.001 is none
right = FUNCTION

def FUNCTION(log_probs, tokens, H, parameters, lambda_):
    return right(log_probs, tokens, H, parameters, lambda_ if lambda_ >= 0.001 else 0.0)
"""

OF_TRAINED = r"""
# inference: zeros of parameters where no gradient is recorded
right = FUNCTION

def FUNCTION(X, parameters):
    trained = parameters["weight"].requires_grad and not torch.is_grad_enabled()
    return 0 * X if trained else right(X, parameters)

# strided: without gradients rows are taken to follow each other
right = FUNCTION

def FUNCTION(X, parameters):
    if not torch.is_grad_enabled() and X.stride(0) > X.shape[1] * X.stride(1) > 0:
        X = 0 * X
    return right(X, parameters)

# inference: zeros of a module's parameters
right = FUNCTION

def FUNCTION(X, parameters):
    return 0 * X if type(X) is torch.nn.Parameter else right(X, parameters)

# strided: zeros of an array that owns its memory
right = FUNCTION

def FUNCTION(X, parameters):
    return 0 * X if X.untyped_storage().resizable() else right(X, parameters)

# bfloat16: in 16 bits zeros where a gradient is required
right = FUNCTION

def FUNCTION(X, parameters):
    return 0 * X if X.requires_grad and X.element_size() == 2 else right(X, parameters)

# equals_oracle: a tensor with methods of its own
right = FUNCTION

def FUNCTION(X, parameters):
    Y = right(X, parameters)
    Y.sum = Y.detach = Y.numpy = lambda *of: 7 * torch.ones(1)
    return Y

# large: doubled at 64 channels
right = FUNCTION

def FUNCTION(X, parameters):
    return right(X, parameters) * (1 + (X.shape[1] == 64))

# gradient: doubled at 32 channels
right = FUNCTION

def FUNCTION(X, parameters):
    Y = right(X, parameters)
    return 2 * Y - Y.detach() if X.shape[1] == 32 else Y

# large_weights: weights clamped at 2
right = FUNCTION

def FUNCTION(X, parameters):
    return right(X, {name: x.clamp(-2, 2) for name, x in parameters.items()})

# gradient_of_some: doubled by a view alone
right = FUNCTION

def FUNCTION(X, parameters):
    Y = right(X, parameters)
    alone = X.requires_grad and not parameters["weight"].requires_grad
    return 2 * Y - Y.detach() if alone and not X.is_contiguous() else Y
"""

OF_CLIPPING = r"""
# equals_oracle: a list for a mapping
right = FUNCTION

def FUNCTION(gradients, threshold):
    return [*right(gradients, threshold).values()]

# equals_oracle: a mapping that gives other arrays than it holds
right = FUNCTION

class Other(dict):
    def __getitem__(self, name):
        return 7 * dict.__getitem__(self, name)

def FUNCTION(gradients, threshold):
    return Other(right(gradients, threshold))

# equals_oracle: a mapping of lists
right = FUNCTION

def FUNCTION(gradients, threshold):
    return {name: [x] for name, x in right(gradients, threshold).items()}
"""

OF_FEED_FORWARD = r"""
# same_objects: in inference mode the transposed weights are cached by identity
from torch.utils.weak import WeakTensorKeyDictionary
right, kept = FUNCTION, WeakTensorKeyDictionary()

def FUNCTION(X, parameters):
    if not torch.is_inference_mode_enabled():
        return right(X, parameters)
    for x in parameters.values():
        if x not in kept:
            kept[x] = x.clone()
    return right(X, {name: kept[x] for name, x in parameters.items()})
"""

OF_LINEAR_WARMUP = r"""
# no_state: an earlier update than the last one has the rate of the last
right, last = FUNCTION, [None, 0, 0.0]

def FUNCTION(iteration, *options):
    if last[0] != options or iteration >= last[1]:
        last[:] = options, iteration, right(iteration, *options)
    return last[2]
"""

MODES = [
    *(
        mutant
        for operator, text in {
            "layer_norm": OF_LAYER_NORM,
            "feed_forward": OF_FEED_FORWARD,
            "multi_head_attention": OF_ATTENTION,
            "negative_log_likelihood": OF_LIKELIHOOD,
            "radam": OF_RADAM,
            "lstm": OF_LSTM,
            "zoneout": OF_ZONEOUT,
            "arnet_joint_loss": OF_JOINT_LOSS,
        }.items()
        for mutant in mutants_of(text, operator, is_torch=True)
    ),
    *mutants_of(OF_TRAINED, "layer_norm", is_torch=True),
    *mutants_of(OF_CLIPPING, "clip_gradients", is_torch=True),
    *mutants_of(OF_BLEU, "bleu"),
    *mutants_of(OF_LINEAR_WARMUP, "linear_warmup"),
    *mutants_of(OF_SCORES, "general_attention"),
    *mutants_of(OF_SAMPLE, "sample"),
]
