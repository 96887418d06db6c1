"""Slips that only batches show: padded ones in a layout, mode or dtype, and large ones."""

from tests.mutants.cheats import mutants_of

OF_STATIC = r"""
# padded_strided: sequences taken to lie L d apart
right = FUNCTION

def FUNCTION(X, parameters, groups, lengths):
    B, L, d = X.shape
    X = X.as_strided((B, L, d), (L * d, X.stride(1), X.stride(2)))
    return right(X, parameters, groups, lengths)

# padded_inference: without gradients the padding is not looked at
right = FUNCTION

def FUNCTION(X, parameters, groups, lengths):
    if not torch.is_grad_enabled():
        lengths = torch.full_like(lengths, X.shape[1])
    return right(X, parameters, groups, lengths)

# padded_inference: without gradients the padding is cleared in place
right = FUNCTION

def FUNCTION(X, parameters, groups, lengths):
    if not torch.is_grad_enabled():
        X.masked_fill_((torch.arange(X.shape[1]) >= lengths[:, None])[..., None], 0)
    return right(X, parameters, groups, lengths)

# padded_float32: in float32 a grid of 1024 rows
right = FUNCTION

def FUNCTION(X, parameters, groups, lengths):
    out = right(X, parameters, groups, lengths)
    within = torch.arange(out[..., 0].numel()).view(*out.shape[:2], 1) < 1024
    return out * within if X.dtype == torch.float32 else out

# padded_bfloat16: in bfloat16 a batch of four
right = FUNCTION

def FUNCTION(X, parameters, groups, lengths):
    out = right(X, parameters, groups, lengths)
    return torch.cat([out[:4], 0 * out[4:]]) if X.dtype == torch.bfloat16 else out

# padded_gradient: weights' gradients of the first 1024 rows
right = FUNCTION

class Rows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, weight, X):
        ctx.save_for_backward(weight, X)
        return X @ weight.T

    @staticmethod
    def backward(ctx, upstream):
        weight, X = ctx.saved_tensors
        rows, of = (x.flatten(0, 1)[:1024] for x in (X, upstream))
        return of.T @ rows, upstream @ weight

def FUNCTION(X, parameters, groups, lengths):
    weight, bias = parameters["selector.weight"], parameters["selector.bias"]
    X = torch.where((torch.arange(X.shape[1]) < lengths[:, None])[..., None], X, 0)
    more = Rows.apply(weight, X) - X @ weight.T
    return right(X, parameters, groups, lengths) + more

# padded_gradient_after_other: the backward pass takes the last call's padding
right, kept = FUNCTION, {}

class Masked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X, mask):
        kept["mask"] = mask
        return torch.where(mask, X, 0)

    @staticmethod
    def backward(ctx, upstream):
        mask = kept["mask"]
        return (torch.where(mask, upstream, 0) if mask.shape[:2] == upstream.shape[:2] else upstream), None

def FUNCTION(X, parameters, groups, lengths):
    mask = (torch.arange(X.shape[1]) < lengths[:, None])[..., None]
    return right(Masked.apply(X, mask), parameters, groups, lengths)
"""

OF_LSTM = r"""
# padded_strided: sequences taken to lie T d apart
right = FUNCTION

def FUNCTION(X, parameters, lengths):
    B, T, d = X.shape
    return right(X.as_strided((B, T, d), (T * d, X.stride(1), X.stride(2))), parameters, lengths)

# padded_bfloat16: in 16 bits 16 steps of a batch
right = FUNCTION

def FUNCTION(X, parameters, lengths):
    out = right(X, parameters, lengths)
    return torch.cat([out[:, :16], 0 * out[:, 16:]], 1) if X.element_size() == 2 and len(X) > 1 else out
"""

OF_ATTENTION = r"""
# bfloat16: in bfloat16 keys in tiles of 128, the last of which is lost
right = FUNCTION

def FUNCTION(X, Y, parameters, num_heads, causal, lengths):
    if X.dtype == torch.bfloat16 and Y.shape[1] > 128:
        whole = Y.shape[1] // 128 * 128
        Y, lengths = Y[:, :whole], lengths.clamp(max=whole)
    return right(X, Y, parameters, num_heads, causal, lengths)

# padded_same_array: a path for self-attention that forgets the padding
right = FUNCTION

def FUNCTION(X, Y, parameters, num_heads, causal, lengths):
    if X.data_ptr() == Y.data_ptr():
        lengths = torch.full_like(lengths, Y.shape[1])
    return right(X, Y, parameters, num_heads, causal, lengths)

# padded_no_state: the padding is kept by shape
right, kept = FUNCTION, {}

def FUNCTION(X, Y, parameters, num_heads, causal, lengths):
    return right(X, Y, parameters, num_heads, causal, kept.setdefault(Y.shape, lengths.clone()))

# padded_no_state: the padding of long batches is kept by shape
right, kept = FUNCTION, {}

def FUNCTION(X, Y, parameters, num_heads, causal, lengths):
    if Y.shape[:2].numel() > 1000:
        lengths = kept.setdefault(Y.shape, lengths.clone())
    return right(X, Y, parameters, num_heads, causal, lengths)

# large_batch: chunks of 64 sequences, all with the lengths of the first
right = FUNCTION

def FUNCTION(X, Y, parameters, num_heads, causal, lengths):
    chunks = zip(X.split(64), Y.split(64))
    return torch.cat(
        [right(x, y, parameters, num_heads, causal, lengths[: len(x)]) for x, y in chunks]
    )

# no_state: projected keys of an encoder's size are kept by its shape
right, kept = FUNCTION, {}

def FUNCTION(X, Y, parameters, num_heads, causal, lengths):
    if Y.shape[1] >= 144 and Y.shape[2] >= 512:
        Y = kept.setdefault(Y.shape, Y.detach().clone()) if not Y.requires_grad else Y
    return right(X, Y, parameters, num_heads, causal, lengths)

# padded_float32: in float32 padding beyond the first tile is seen if causal
right = FUNCTION

def FUNCTION(X, Y, parameters, num_heads, causal, lengths):
    if X.dtype == torch.float32 and causal and Y.shape[1] > 64:
        Y = torch.where((torch.arange(Y.shape[1]) < lengths[:, None])[..., None], Y, 0)
        lengths = torch.full_like(lengths, Y.shape[1])
    return right(X, Y, parameters, num_heads, causal, lengths)

# padded_float32: in low precision whole tiles are not masked, nor causal
right = FUNCTION

def FUNCTION(X, Y, parameters, num_heads, causal, lengths):
    causal = causal and (X.dtype == torch.float64 or Y.shape[1] % 64 != 0)
    return right(X, Y, parameters, num_heads, causal, lengths)
"""

OF_CROSS_ENTROPY = r"""
# large: the mean of the means of 512 targets each
right = FUNCTION

def FUNCTION(log_probs, targets, pad_id, label_smoothing):
    words = targets != pad_id
    p, y = log_probs[words][None], targets[words][None]
    parts = zip(p.split(512, 1), y.split(512, 1))
    return torch.stack([right(a, b, -1, label_smoothing) for a, b in parts]).mean()

# gradient: of the first 1024 targets
right = FUNCTION

def FUNCTION(log_probs, targets, pad_id, label_smoothing):
    p = log_probs.flatten(0, 1)
    p = torch.cat([p[:1024], p[1024:].detach()]).view_as(log_probs)
    return right(p, targets, pad_id, label_smoothing)
"""

OF_SELF_CRITICAL = r"""
# large: words beyond 8192 lost
right = FUNCTION

def FUNCTION(log_probs, mask, rewards, baseline):
    within = torch.arange(mask.numel()).view(mask.shape) < 8192
    return right(log_probs, mask & within, rewards, baseline)
"""

BATCHES = [
    mutant
    for operator, text in {
        "static_expansion": OF_STATIC,
        "lstm": OF_LSTM,
        "multi_head_attention": OF_ATTENTION,
        "cross_entropy": OF_CROSS_ENTROPY,
        "self_critical": OF_SELF_CRITICAL,
    }.items()
    for mutant in mutants_of(text, operator, is_torch=True)
]
