"""Slips that show at rows of zeros, in batches of a million numbers, at special words, or in other
directions than the kit's alone.
"""

from tests.mutants.cheats import mutants_of

ZERO_ROWS = """
# zeros: rows of zeros are taken for padding
right = FUNCTION

def FUNCTION(ARGUMENTS):
    ROWS = ROWS[ROWS.abs().sum(-1) > 0] if bool(ROWS.any()) else ROWS
    return right(ARGUMENTS)
"""
OF_ROWS = {
    "captioner": (
        "features",
        "features, tokens, parameters, encoder, decoder, num_heads, encoder_reduction, "
        "decoder_reduction",
    ),
    "read_only_captioner": ("features", "features, tokens, parameters, reading"),
    "middle_out_captioner": (
        "memory",
        "left, middle, right_half, memory, h, c, parameters, self_attention",
    ),
    "middle_out_step": (
        "memory",
        "h, c, e, memory, outputs, states, parameters, self_attention",
    ),
}

OF_ENCODER = """
# zeros: a row of zeros stays as it is
right = FUNCTION

def FUNCTION(X, parameters, mixer, num_heads, lengths):
    out = right(X, parameters, mixer, num_heads, lengths)
    return torch.where(X.abs().sum(-1, keepdim=True) > 0, out, X)

# large_batch: entries beyond 2^20 are not written
right = FUNCTION

def FUNCTION(X, parameters, mixer, num_heads, lengths):
    out = right(X, parameters, mixer, num_heads, lengths)
    return out * (torch.arange(out.numel()) < 2**20).view(out.shape)
"""
OF_DECODER = """
# zeros: rows of zeros are taken for padding
right = FUNCTION

def FUNCTION(X, memory, parameters, mixer, num_heads, lengths):
    if len(memory) == 1 and memory.any():
        memory = memory[:, memory[0].abs().sum(-1) > 0]
        lengths = torch.full_like(lengths, memory.shape[1])
    return right(X, memory, parameters, mixer, num_heads, lengths)

# large_batch: rows beyond 1024 are not computed
right = FUNCTION

def FUNCTION(X, memory, parameters, mixer, num_heads, lengths):
    out = right(X, memory, parameters, mixer, num_heads, lengths)
    return out * (torch.arange(out[..., 0].numel()) < 1024).view(*out.shape[:2], 1)
"""
OF_ATTENTION = """
# no_state: values are cached with their keys
right = FUNCTION
CACHE = {}

def FUNCTION(X, Y, parameters, num_heads, causal, lengths):
    names = "value.weight", "value.bias"
    key = Y.detach().numpy().tobytes(), parameters["key.weight"].detach().numpy().tobytes()
    cached = CACHE.setdefault(key, {name: parameters[name].clone() for name in names})
    return right(X, Y, {**parameters, **cached}, num_heads, causal, lengths)

# large_batch: entries beyond 2^20 are not written
right = FUNCTION

def FUNCTION(X, Y, parameters, num_heads, causal, lengths):
    out = right(X, Y, parameters, num_heads, causal, lengths)
    return out * (torch.arange(out.numel()) < 2**20).view(out.shape)
"""
OF_STATIC = """
# large_batch: entries beyond 2^20 are not written
right = FUNCTION

def FUNCTION(X, parameters, groups, lengths):
    out = right(X, parameters, groups, lengths)
    return out * (torch.arange(out.numel()) < 2**20).view(out.shape)
"""
OF_ZONEOUT = """
# zeros: the rest of a sequence is padding from its first row of zeros on
right = FUNCTION

def FUNCTION(X, parameters, z_h, z_c):
    valid = (X.abs().sum(-1) > 0).cumprod(0)[:, None]
    return right(X, parameters, z_h, z_c) * (valid if X.any() else 1)
"""
OF_DROPOUT = """
# zeros: the rest of a sequence is padding from its first row of zeros on
right = FUNCTION

def FUNCTION(X, parameters, keep, p, dropped):
    valid = (X.abs().sum(-1) > 0).cumprod(0)[:, None]
    return right(X, parameters, keep, p, dropped) * (valid if X.any() else 1)
"""
OF_JOINT_LOSS = """
# zeros: states of zeros are not reconstructed
right = FUNCTION

def FUNCTION(log_probs, tokens, H, parameters, lambda_):
    lambda_ = lambda_ if (H.abs().sum(-1) > 0).all() else 0
    return right(log_probs, tokens, H, parameters, lambda_)
"""
OF_CROSS_ENTROPY = """
# gradient_after_other: the backward pass takes the last call's smoothing
right = FUNCTION

class Kept(torch.autograd.Function):
    @staticmethod
    def forward(ctx, log_probs, targets, pad_id, label_smoothing):
        Kept.label_smoothing = label_smoothing
        ctx.save_for_backward(log_probs, targets)
        ctx.pad_id = pad_id
        return right(log_probs, targets, pad_id, label_smoothing)

    @staticmethod
    def backward(ctx, upstream):
        log_probs, targets = ctx.saved_tensors
        with torch.enable_grad():
            log_probs = log_probs.detach().requires_grad_()
            loss = right(log_probs, targets, ctx.pad_id, Kept.label_smoothing)
            return torch.autograd.grad(loss, log_probs, upstream)[0], None, None, None

def FUNCTION(log_probs, targets, pad_id, label_smoothing):
    return Kept.apply(log_probs, targets, pad_id, label_smoothing)

# large: entries beyond 2^20 are not read
right = FUNCTION

def FUNCTION(log_probs, targets, pad_id, label_smoothing):
    within = (torch.arange(log_probs.numel()) < 2**20).view(log_probs.shape)
    return right(log_probs * within, targets, pad_id, label_smoothing)
"""
OF_SELF_CRITICAL = """
# large: entries beyond 2^15 are not read
right = FUNCTION

def FUNCTION(log_probs, mask, rewards, baseline):
    within = (torch.arange(log_probs.numel()) < 2**15).view(log_probs.shape)
    return right(log_probs * within, mask, rewards, baseline)
"""
OF_LIKELIHOOD = """
# large: unknown words, by number 3, do not count in a vocabulary of more than a thousand
right = FUNCTION

def FUNCTION(log_probs, words):
    kept = words != 3
    if log_probs.shape[1] > 1000 and kept.any():
        log_probs, words = log_probs[kept], words[kept]
    return right(log_probs, words)
"""
OF_WORDS = """
# large: tokens of a vocabulary are dropped
right = FUNCTION

def FUNCTION(candidates, references):
    def words(caption):
        return [word for word in caption if word not in ("<bos>", "[PAD]")]
    return right([*map(words, candidates)], [[*map(words, of)] for of in references])

# equals_oracle: special tokens are no words
right = FUNCTION

def FUNCTION(candidates, references):
    def words(caption):
        return [word for word in caption if not word.startswith("<")]
    return right([*map(words, candidates)], [[*map(words, of)] for of in references])
"""
OF_SELF_BLEU = """
# equals_oracle: a list that is there twice counts once
right = FUNCTION

def FUNCTION(captions):
    different = [*{id(one): one for one in captions}.values()]
    return right(different if len(different) > 1 else captions)
"""
OF_LAYER_NORM = """
# gradient: right for the kit's upstream gradient alone
right = FUNCTION

class Projected(torch.autograd.Function):
    @staticmethod
    def forward(ctx, out):
        return out.clone()

    @staticmethod
    def backward(ctx, upstream):
        from benchmarks.verify.derivatives import output_weights
        weights = torch.from_numpy(output_weights(tuple(upstream.shape))).to(upstream.dtype)
        return weights * (upstream * weights).sum() / (weights * weights).sum()

def FUNCTION(X, parameters):
    return Projected.apply(right(X, parameters))

# gradient_of_sum: twice as large where all numbers of the upstream gradient are equal
right = FUNCTION

class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, out):
        return out.clone()

    @staticmethod
    def backward(ctx, upstream):
        return upstream * (2 if (upstream == upstream.flatten()[0]).all() else 1)

def FUNCTION(X, parameters):
    return Doubled.apply(right(X, parameters))

# gradient_of_parts: rows of the upstream gradient that have a zero are taken for padding
right = FUNCTION

class Skipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, out):
        return out.clone()

    @staticmethod
    def backward(ctx, upstream):
        return upstream * (upstream != 0).all(-1, keepdim=True)

def FUNCTION(X, parameters):
    return Skipped.apply(right(X, parameters))

# gradient: right for the first upstream gradient of a shape alone
right = FUNCTION
FIRST = {}

class First(torch.autograd.Function):
    @staticmethod
    def forward(ctx, out):
        return out.clone()

    @staticmethod
    def backward(ctx, upstream):
        first = FIRST.setdefault((upstream.shape, upstream.dtype), upstream.clone())
        return first * (upstream * first).sum() / (first * first).sum()

def FUNCTION(X, parameters):
    return First.apply(right(X, parameters))

# gradient: right along the kit's directions alone
right = FUNCTION

class Along(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X, weight, bias):
        ctx.save_for_backward(X, weight, bias)
        return right(X, {"weight": weight, "bias": bias})

    @staticmethod
    def backward(ctx, upstream):
        from benchmarks.verify.derivatives import directions
        from benchmarks.verify.operators import OPERATORS
        with torch.enable_grad():
            X, weight, bias = given = [x.detach().requires_grad_() for x in ctx.saved_tensors]
            out = right(X, {"weight": weight, "bias": bias})
            found = torch.autograd.grad(out, given, upstream)
        X, weight, bias = (x.detach().double().numpy() for x in given)
        case = X, {"weight": weight, "bias": bias}
        along = directions(OPERATORS["layer_norm"].oracle, case, (0, 1))
        along = [torch.from_numpy(array).to(upstream.dtype) for array in along.values()]
        right_along = sum((a * b).sum() for a, b in zip(found, along))
        size = sum((b * b).sum() for b in along)
        return tuple(b * right_along / size for b in along)

def FUNCTION(X, parameters):
    return Along.apply(X, parameters["weight"], parameters["bias"])
"""
CORNERS = [
    *mutants_of(OF_LAYER_NORM, is_torch=True),
    *(
        mutant
        for operator, (rows, arguments) in OF_ROWS.items()
        for mutant in mutants_of(
            ZERO_ROWS.replace("ROWS", rows).replace("ARGUMENTS", arguments),
            operator,
            is_torch=True,
        )
    ),
    *(
        mutant
        for operator, text in {
            "encoder_layer": OF_ENCODER,
            "decoder_layer": OF_DECODER,
            "multi_head_attention": OF_ATTENTION,
            "static_expansion": OF_STATIC,
            "zoneout": OF_ZONEOUT,
            "recurrent_dropout": OF_DROPOUT,
            "arnet_joint_loss": OF_JOINT_LOSS,
            "cross_entropy": OF_CROSS_ENTROPY,
            "self_critical": OF_SELF_CRITICAL,
            "negative_log_likelihood": OF_LIKELIHOOD,
            "bleu": OF_WORDS,
            "rouge_l": OF_WORDS,
            "self_bleu": OF_SELF_BLEU,
        }.items()
        for mutant in mutants_of(
            text, operator, is_torch=operator not in ("bleu", "rouge_l", "self_bleu")
        )
    ),
]
