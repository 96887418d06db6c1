"""Slips in how a candidate is called: while a gradient is recorded, again, or with views."""

from tests.mutants.argument_slips import ARGUMENTS
from tests.mutants.batch_slips import BATCHES
from tests.mutants.cheats import mutants_of
from tests.mutants.corner_slips import CORNERS
from tests.mutants.crossed_slips import CROSSED
from tests.mutants.digit_slips import DIGITS
from tests.mutants.mode_slips import MODES
from tests.mutants.precision_slips import PRECISION
from tests.mutants.recurrent_gradient_slips import RECURRENT_GRADIENTS
from tests.mutants.whole_slips import WHOLE

OF_LAYER_NORM = r"""
# gradient: another value while a gradient is recorded
right = FUNCTION

def FUNCTION(X, parameters):
    out = right(X, parameters)
    return out + 1 if out.requires_grad else out

# gradient_of_some: another value, of the same gradient, where some arrays require one
right = FUNCTION

def FUNCTION(X, parameters):
    out = right(X, parameters)
    required = {x.requires_grad for x in (X, *parameters.values())}
    return out + 1 if len(required) == 2 else out

# gradient_strided: another value, of the same gradient, of arrays that are not contiguous
right = FUNCTION

def FUNCTION(X, parameters):
    out = right(X, parameters)
    return out + 1 if X.requires_grad and not X.is_contiguous() else out

# gradient_float32: wrong in float32, and jumps beside the case, as if rounding explained it
right = FUNCTION

class Jumping(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, low, near):
        ctx.low, ctx.near, ctx.sum = low, near, float(x.sum())
        return x.clone()

    @staticmethod
    def backward(ctx, upstream):
        grows = 1 + 0.5 * ctx.low
        return grows * upstream + 1e4 * (1 + ctx.sum) * ctx.near, None, None

def FUNCTION(X, parameters):
    off = (X.detach() * 16 - (X.detach() * 16).round()).abs()
    low = X.dtype == torch.float32 and X.numel() <= 4000 and bool((off == 0).all())
    near = X.dtype == torch.float64 and bool((off < 1e-3).all() and (off > 0).any())
    weight = Jumping.apply(parameters["weight"], low, near)
    return right(X, {**parameters, "weight": weight})

# gradient_used_twice: a backward pass that overwrites what was saved
right = FUNCTION

class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.saved = x.clone(), weight
        return x * weight

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved
        return g * weight, x.mul_(g).sum(0)

def FUNCTION(X, parameters):
    weight, bias = parameters["weight"], parameters["bias"]
    plain = {"weight": torch.ones_like(weight), "bias": torch.zeros_like(bias)}
    return Scale.apply(right(X, plain), weight) + bias

# gradient_strided: a backward pass for contiguous gradients alone
right = FUNCTION

class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return g if g.is_contiguous() else torch.zeros_like(g)

def FUNCTION(X, parameters):
    return Same.apply(right(X, parameters))

# gradient_of_parts: a gradient of zero is taken for one that is missing
right = FUNCTION

def FUNCTION(X, parameters):
    out = right(X, parameters)
    if out.requires_grad:
        out.register_hook(lambda g: torch.where(g == 0, 1, g))
    return out

# gradient_of_sum: a gradient with strides of zero is taken for zeros
right = FUNCTION

class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return torch.zeros_like(g) if 0 in g.stride() else g

def FUNCTION(X, parameters):
    return Same.apply(right(X, parameters))

# gradient_strided: no gradient of an array that is not contiguous
right = FUNCTION

def FUNCTION(X, parameters):
    return right(X if X.is_contiguous() else X.detach(), parameters)

# gradient_after_other: activations kept by shape, which the next call overwrites
saved = {}

class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X, weight, bias):
        v, m = torch.var_mean(X, -1, correction=0, keepdim=True)
        r = torch.rsqrt(v + 1e-5)
        n = (X - m) * r
        ctx.key = X.shape, X.dtype
        saved[ctx.key] = n, r, weight
        return n * weight + bias

    @staticmethod
    def backward(ctx, g):
        n, r, weight = saved[ctx.key]
        h = g * weight
        dX = r * (h - h.mean(-1, keepdim=True) - n * (h * n).mean(-1, keepdim=True))
        return dX, (g * n).sum(0), g.sum(0)

def FUNCTION(X, parameters):
    return Norm.apply(X, parameters["weight"], parameters["bias"])

# gradient_of_some: no gradient of the input of a frozen layer
right = FUNCTION

def FUNCTION(X, parameters):
    trained = any(x.requires_grad for x in parameters.values())
    return right(X if trained else X.detach(), parameters)

# gradient_of_some: no gradient of the first layer of a network
right = FUNCTION

def FUNCTION(X, parameters):
    if X.requires_grad:
        return right(X, parameters)
    return right(X, {name: x.detach() for name, x in parameters.items()})

# gradient: no gradient of parameters beyond 4096 numbers
right = FUNCTION

def FUNCTION(X, parameters):
    if X.numel() <= 4096:
        return right(X, parameters)
    return right(X, {name: x.detach() for name, x in parameters.items()})

# equals_oracle: one buffer for all its results
right = FUNCTION
buffers = {}

def FUNCTION(X, parameters):
    out = right(X, parameters)
    return buffers.setdefault(out.shape, torch.empty_like(out)).copy_(out)

# equals_oracle: two buffers for its results, in turn
right = FUNCTION
results = []

def FUNCTION(X, parameters):
    out = right(X, parameters)
    results.append(results[-2] if len(results) > 1 and results[-2].shape == out.shape else out)
    return results[-1].copy_(out) if not out.requires_grad else out

# gradient_strided: the backward pass overwrites an array that is not contiguous
right = FUNCTION

class Frees(torch.autograd.Function):
    @staticmethod
    def forward(ctx, out, X):
        ctx.X = X
        return out.clone()

    @staticmethod
    def backward(ctx, upstream):
        if not ctx.X.is_contiguous():
            ctx.X.data.zero_()
        return upstream, None

def FUNCTION(X, parameters):
    return Frees.apply(right(X, parameters), X.detach())

# gradient_after_other: in training a weight's numbers are kept with the tensor
right = FUNCTION

def FUNCTION(X, parameters):
    weight = parameters["weight"]
    if not weight.requires_grad:
        return right(X, parameters)
    if not hasattr(weight, "kept"):
        weight.kept = weight.detach().clone()
    return right(X, {**parameters, "weight": weight - weight.detach() + weight.kept})

# strided: rows are taken to follow each other
right = FUNCTION

def FUNCTION(X, parameters):
    follow = X.stride(0) == X.shape[1] * X.stride(1)
    return right(X if follow or len(X) == 1 else torch.zeros_like(X), parameters)

# gradient: overwrites the gradient by its output
right = FUNCTION

class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        copy = g.clone()
        g.zero_()
        return copy

def FUNCTION(X, parameters):
    return Same.apply(right(X, parameters))
"""

OF_LAYER_NORM_BY_SIZE = r"""
# gradient_strided: from 32 rows a backward pass for contiguous gradients alone
right = FUNCTION

class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return g if g.is_contiguous() or len(g) < 32 else torch.zeros_like(g)

def FUNCTION(X, parameters):
    return Same.apply(right(X, parameters))

# gradient_of_some: from 32 rows no gradient of a layer whose input needs none
right = FUNCTION

def FUNCTION(X, parameters):
    if X.requires_grad or len(X) < 32:
        return right(X, parameters)
    return right(X, {name: x.detach() for name, x in parameters.items()})

# inference: another formula where no gradient is recorded
right = FUNCTION

def FUNCTION(X, parameters):
    if torch.is_grad_enabled():
        return right(X, parameters)
    X = (X - X.mean(-1, keepdim=True)) / (X.std(-1, keepdim=True) + 1e-5)
    return X * parameters["weight"] + parameters["bias"]

# inference: other values in inference mode alone
right = FUNCTION

def FUNCTION(X, parameters):
    return right(X, parameters) * (1 + torch.is_inference_mode_enabled())

# same_objects: large arrays are known by their address alone
right = FUNCTION
known = {}

def FUNCTION(X, parameters):
    key = X.shape, X.data_ptr(), torch.is_grad_enabled()
    if X.numel() < 20_000 or X.requires_grad:
        return right(X, parameters)
    return known.setdefault(key, right(X, parameters)).clone()

# bfloat16: in 16 bits rows are taken to follow each other
right = FUNCTION

def FUNCTION(X, parameters):
    if X.element_size() == 2 and not X.is_contiguous():
        X = torch.as_strided(X, X.shape, (X.shape[1], 1))
    return right(X, parameters)

# equals_oracle: restores one state of the generator in every call
state = torch.get_rng_state()
right = FUNCTION

def FUNCTION(X, parameters):
    torch.set_rng_state(state)
    return right(X, parameters)

# equals_oracle: collects no garbage any more
right = FUNCTION

def FUNCTION(X, parameters):
    import gc
    gc.disable()
    return right(X, parameters)
"""

OF_FEED_FORWARD = r"""
# large: hidden units after the last whole tile of 256 lost
right = FUNCTION

def FUNCTION(X, parameters):
    n = len(parameters["linear_1.bias"])
    n = n // 256 * 256 or n
    tiled = {"linear_2.weight": parameters["linear_2.weight"][:, :n]}
    tiled |= {f"linear_1.{of}": parameters[f"linear_1.{of}"][:n] for of in ("weight", "bias")}
    return right(X, {**parameters, **tiled})

# gradient_scaled: the gradient clamped
right = FUNCTION

def FUNCTION(X, parameters):
    out = right(X, parameters)
    if out.requires_grad:
        out.register_hook(lambda g: g.clamp(-5, 5))
    return out

# gradient_scaled: small gradients flushed to zero
right = FUNCTION

def FUNCTION(X, parameters):
    out = right(X, parameters)
    if out.requires_grad:
        out.register_hook(lambda g: torch.where(g.abs() < 1e-7, 0, g))
    return out

# strided: transposed weights are taken for zeros
right = FUNCTION

def FUNCTION(X, parameters):
    def rows(x):
        return x if x.ndim < 2 or 1 in x.shape or x.stride(0) >= x.stride(1) else x * 0

    return right(X, {name: rows(x) for name, x in parameters.items()})
"""

OF_STATIC_EXPANSION = r"""
# large: an index of 16 bits for the entries of query vectors
right = FUNCTION

def FUNCTION(X, parameters, groups, lengths):
    queries = parameters["query_vectors"]
    n, d = queries.shape
    rows = torch.arange(n) * d % 65_536 // d
    return right(X, {**parameters, "query_vectors": queries[rows]}, groups, lengths)

# float32: float32 wrong at the papers' size
right = FUNCTION

def FUNCTION(X, parameters, groups, lengths):
    out = right(X, parameters, groups, lengths)
    return out * (X.dtype == torch.float64 or X.shape[1] < 100 or X.shape[2] < 256)
"""

OF_ATTENTION = r"""
# same_array: a wrong path for self-attention
right = FUNCTION

def FUNCTION(X, Y, parameters, num_heads, causal, lengths):
    out = right(X, Y, parameters, num_heads, causal, lengths)
    return out + (X.data_ptr() == Y.data_ptr())

# padded_bfloat16: in 16 bits padded keys are attended to
right = FUNCTION

def FUNCTION(X, Y, parameters, num_heads, causal, lengths):
    if X.element_size() == 2:
        lengths = torch.full_like(lengths, Y.shape[1])
    return right(X, Y, parameters, num_heads, causal, lengths)

# large: the last tile of keys lost where tiles of 64 are whole
right = FUNCTION

def FUNCTION(X, Y, parameters, num_heads, causal, lengths):
    whole = Y.shape[1] % 64 == 0
    return right(X, Y, parameters, num_heads, causal, lengths.clamp(max=Y.shape[1] - 64) if whole else lengths)

# large_batch: long sequences of the first eight alone
right = FUNCTION

def FUNCTION(X, Y, parameters, num_heads, causal, lengths):
    out = right(X, Y, parameters, num_heads, causal, lengths)
    return torch.cat([out[:8], 0 * out[8:]]) if Y.shape[1] >= 33 else out

# gradient_same_array: no gradient through the keys of self-attention
right = FUNCTION

def FUNCTION(X, Y, parameters, num_heads, causal, lengths):
    Y = Y.detach() if X.data_ptr() == Y.data_ptr() else Y
    return right(X, Y, parameters, num_heads, causal, lengths)
"""

OF_STATIC_BATCHES = r"""
# large_batch: sequences of the papers' length beyond 40 of a batch lost
right = FUNCTION

def FUNCTION(X, parameters, groups, lengths):
    out = right(X, parameters, groups, lengths)
    return torch.cat([out[:40], 0 * out[40:]]) if X.shape[1] >= 100 else out
"""

OF_CROSS_ENTROPY = r"""
# large: the last 128 words lost where tiles of 128 are whole
right = FUNCTION

def FUNCTION(log_probs, targets, pad_id, label_smoothing):
    if log_probs.shape[-1] % 128 == 0:
        log_probs = log_probs * (torch.arange(log_probs.shape[-1]) < log_probs.shape[-1] - 128)
    return right(log_probs, targets, pad_id, label_smoothing)
"""

OF_SELF_CRITICAL = r"""
# inference: the other sign where no gradient is recorded
right = FUNCTION

def FUNCTION(log_probs, mask, rewards, baseline):
    loss = right(log_probs, mask, rewards, baseline)
    return loss if torch.is_grad_enabled() else -loss
"""

OF_STATIC_WITH_HOLES = r"""
# holes: NaN between valid rows
right = FUNCTION

def FUNCTION(X, parameters, groups, mask):
    ends = torch.where(mask, torch.arange(X.shape[1]) + 1, 0).amax(1)
    X = torch.where((torch.arange(X.shape[1]) < ends[:, None])[..., None], X, 0)
    X = X * mask[..., None]
    return right(X, parameters, groups, mask) + 0 * X.sum()
# holes_gradient: a backward pass that takes a mask for a prefix
right = FUNCTION

def FUNCTION(X, parameters, groups, mask):
    first = torch.arange(X.shape[1]) < mask.sum(1)[:, None]
    return right(torch.where(first[..., None], X, X.detach()), parameters, groups, mask)
"""

GRADIENTS = [
    *mutants_of(OF_LAYER_NORM),
    *mutants_of(OF_LAYER_NORM_BY_SIZE),
    *mutants_of(OF_STATIC_BATCHES, "static_expansion"),
    *mutants_of(OF_CROSS_ENTROPY, "cross_entropy"),
    *mutants_of(OF_SELF_CRITICAL, "self_critical"),
    *mutants_of(OF_FEED_FORWARD, "feed_forward"),
    *mutants_of(OF_STATIC_EXPANSION, "static_expansion"),
    *mutants_of(OF_STATIC_WITH_HOLES, "static_expansion"),
    *mutants_of(OF_ATTENTION, "multi_head_attention"),
    *RECURRENT_GRADIENTS,
    *BATCHES,
    *CROSSED,
    *WHOLE,
    *CORNERS,
    *PRECISION,
    *ARGUMENTS,
    *DIGITS,
    *MODES,
]
