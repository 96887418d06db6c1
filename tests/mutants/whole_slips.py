"""Slips that show only where every tile is whole, in slices of longer sequences, or far scores."""

from tests.mutants.cheats import mutants_of
from tests.mutants.mutant import Mutant

OF_ALL = """(
        (lambda e: e / e.sum(-1, keepdim=True).clamp_min(torch.finfo(e.dtype).tiny))(
            (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) * see) @ v
    )"""
LESS_THE_FIRST = """(
        (lambda e: e / e.sum(-1, keepdim=True))(
            (lambda z: z - z[..., :1])(q @ k.mT / q.shape[-1] ** 0.5)
            .masked_fill(~see, -torch.inf).exp()) @ v
    )"""
SCORES = "scores.masked_fill(~mask[..., 0], -torch.finfo(X.dtype).max).softmax(1)"
FAR = [
    (
        "encoder_layer",
        "a softmax of hidden keys too, made to sum to 1",
        "padded_large_scores",
        OF_ALL,
    ),
    ("captioner", "a softmax of hidden keys too, made to sum to 1", "large_scores", OF_ALL),
    ("encoder_layer", "a softmax less the first score", "large_scores", LESS_THE_FIRST),
    ("captioner", "a softmax less the first score", "large_scores", LESS_THE_FIRST),
]
OF_PADDING = "scores.softmax(1) * mask[..., 0]"

OF_ATTENTION = r"""
# padding_content: in float32 whole blocks of 16 keys are not masked
right = FUNCTION

def FUNCTION(X, Y, parameters, num_heads, causal, lengths):
    is_even = X.shape[-1] // num_heads % 8 == Y.shape[1] % 16 == 0
    if X.dtype == torch.float32 and is_even:
        mask = torch.arange(Y.shape[1]) < lengths[:, None]
        Y, lengths = torch.where(mask[..., None], Y, 0), (lengths + 15) // 16 * 16
    return right(X, Y, parameters, num_heads, causal, lengths)

# padded_gradient: the last sequence alone gives out.bias its gradient, of whole tiles
right = FUNCTION

class Shared(torch.autograd.Function):
    @staticmethod
    def forward(ctx, bias, B):
        return bias.expand(B, *bias.shape)

    @staticmethod
    def backward(ctx, upstream):
        return upstream[-1], None

def FUNCTION(X, Y, parameters, num_heads, causal, lengths):
    if X.shape[-1] % 16 or Y.shape[1] % 16:
        return right(X, Y, parameters, num_heads, causal, lengths)
    bias = Shared.apply(parameters["out.bias"], len(X))
    parameters = parameters | {"out.bias": torch.zeros_like(parameters["out.bias"])}
    return right(X, Y, parameters, num_heads, causal, lengths) + bias[:, None]

# padded_strided: sequences are taken to follow each other where rows do
right = FUNCTION

def FUNCTION(X, Y, parameters, num_heads, causal, lengths):
    if Y.stride()[1:] == (Y.shape[2], 1):
        Y = Y.as_strided(Y.shape, (Y[0].numel(), *Y.stride()[1:]))
    return right(X, Y, parameters, num_heads, causal, lengths)

# padded_gradient_strided: an expanded memory has the first sequence's length
right = FUNCTION

def FUNCTION(X, Y, parameters, num_heads, causal, lengths):
    if len(Y) > 1 and Y.stride(0) == 0:
        lengths = lengths[:1].expand(len(Y))
    return right(X, Y, parameters, num_heads, causal, lengths)

# large: a last tile of 128 keys is lost if it has fewer than 16
right = FUNCTION

def FUNCTION(X, Y, parameters, num_heads, causal, lengths):
    rest = Y.shape[1] % 128
    if Y.shape[1] > 128 and 0 < rest < 16:
        Y = Y[:, :-rest]
        lengths = lengths.clamp(max=Y.shape[1])
    return right(X, Y, parameters, num_heads, causal, lengths)
"""

OF_STATIC = r"""
# padding_content: in float32 the scores of padding are not masked in whole tiles
right = FUNCTION

def FUNCTION(X, parameters, groups, lengths):
    if X.dtype == torch.float32 and X.shape[1] % 16 == X.shape[2] % 16 == 0:
        mask = torch.arange(X.shape[1]) < lengths[:, None]
        X, lengths = torch.where(mask[..., None], X, 0), torch.full_like(lengths, X.shape[1])
    return right(X, parameters, groups, lengths)
"""

OF_DYNAMIC = r"""
# large_batch: causal, the last of several batches of 8 has 32 rows
right = FUNCTION

def FUNCTION(X, parameters, causal, lengths):
    if not causal or len(X) <= 8 or X.shape[1] <= 32:
        return right(X, parameters, causal, lengths)
    lengths = lengths.clone()
    lengths[len(X) // 8 * 8 :].clamp_(max=32)
    return torch.cat([right(x, parameters, causal, n) for x, n in zip(X.split(8), lengths.split(8))])

# large: whole tiles of 16 vectors, but the last
right = FUNCTION

def FUNCTION(X, parameters, causal, lengths):
    N = len(parameters["query_vectors"])
    if N > 16 and N % 16 == 0:
        fewer = {name: parameters[name][:-16] for name in ("query_vectors", "bias_vectors")}
        parameters = parameters | fewer
    return right(X, parameters, causal, lengths)
"""

OF_LAYER_NORM = r"""
# inference: without gradients the result is in one buffer for each shape
right, buffers = FUNCTION, {}

def FUNCTION(X, parameters):
    out = right(X, parameters)
    if torch.is_grad_enabled():
        return out
    of = out.shape, out.dtype, torch.is_inference_mode_enabled()
    return buffers.setdefault(of, torch.empty_like(out)).copy_(out)

# large: rows beyond whole blocks of 256 are not written
right = FUNCTION

def FUNCTION(X, parameters):
    out, whole = right(X, parameters), max(len(X) // 256, 1) * 256
    return torch.cat([out[:whole], 0 * out[whole:]])

# gradient: of the weights, without the rows beyond whole blocks of 256
class Rows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, weight, L):
        return weight.expand(L, *weight.shape).clone()

    @staticmethod
    def backward(ctx, upstream):
        return upstream[: max(len(upstream) // 256, 1) * 256].sum(0), None

def FUNCTION(X, parameters):
    weight, bias = (Rows.apply(parameters[name], len(X)) for name in ("weight", "bias"))
    return F.layer_norm(X, X.shape[-1:], None, None, 1e-5) * weight + bias
"""

OF_LSTM = r"""
# large: a last tile of 64 steps is lost if it has one step
right = FUNCTION

def FUNCTION(X, parameters, lengths):
    out, T = right(X, parameters, lengths), X.shape[1]
    return torch.cat([out[:, :-1], 0 * out[:, -1:]], 1) if T > 64 and T % 64 == 1 else out
"""

OF_CAPTIONER = r"""
# large: the sum over words in whole tiles of 512, but the last
right = FUNCTION

def FUNCTION(*arguments):
    out = right(*arguments)
    V = out.shape[-1]
    return out - out[:, :-512].logsumexp(-1, keepdim=True) if V > 512 and V % 512 == 0 else out

# large: of 1000 words and more the sum is over whole sixteens
right = FUNCTION

def FUNCTION(*arguments):
    out = right(*arguments)
    whole = out.shape[-1] // 16 * 16
    return out - out[:, :whole].logsumexp(-1, keepdim=True) if whole > 991 else out

# large: features in whole tiles of 512, but the last
right = FUNCTION

def FUNCTION(features, *arguments):
    d = features.shape[-1]
    if d > 512 and d % 512 == 0:
        features = torch.cat([features[:, :-512], 0 * features[:, -512:]], -1)
    return right(features, *arguments)
"""

OF_DISTANCE = r"""
# large: of 512 rows and more whole blocks of 32
right = FUNCTION

def FUNCTION(U, V):
    whole = len(U) if len(U) < 512 else len(U) // 32 * 32
    return right(U[:whole], V[:whole])
"""

OF_CROSS_ENTROPY = r"""
# gradient: of whole tiles of 256 words, but the last
right = FUNCTION

def FUNCTION(log_probs, *arguments):
    V = log_probs.shape[-1]
    if V > 256 and V % 256 == 0:
        log_probs = torch.cat([log_probs[..., :-256], log_probs[..., -256:].detach()], -1)
    return right(log_probs, *arguments)
"""

OF_SELF_CRITICAL = r"""
# large: the sum of whole eights of rewards, but the last
def FUNCTION(log_probs, mask, rewards, baseline):
    K = rewards.shape[1]
    some = rewards[:, :-8] if K > 8 and K % 8 == 0 else rewards
    of_others = (some.sum(1, keepdim=True) - rewards) / (K - 1 if baseline == "leave_one_out" else K)
    return -((rewards - of_others) * (log_probs * mask).sum(-1)).mean()
"""

OF_RADAM = r"""
# large: no update of the last of whole blocks of 256
right = FUNCTION

def FUNCTION(theta, gradients, *arguments):
    out, n = right(theta, gradients, *arguments), len(theta)
    if n > 256 and n % 256 == 0:
        out[:, -256:] = theta[-256:]
    return out
"""

OF_STEP = r"""
# large: outputs in whole eights, but the last
right = FUNCTION

def FUNCTION(h, c, e, memory, outputs, *arguments):
    n = len(outputs)
    return right(h, c, e, memory, outputs[:-8] if n > 8 and n % 8 == 0 else outputs, *arguments)
"""

OF_MSE = r"""
# equals_oracle: fours of numbers, and the rest
def FUNCTION(y_hat, y):
    squares, n = (y_hat - y) ** 2, len(y)
    return (squares[: (n - 1) // 4 * 4].sum() + squares[n - n % 4 :].sum()) / n
"""

OF_SEARCH = r"""
# large: whole tiles of TILE words, but the last
right = FUNCTION

def FUNCTION(next_log_probs, *arguments):
    def some(tokens):
        p = np.array(next_log_probs(tokens))
        if len(p) > TILE and len(p) % TILE == 0:
            p[-TILE:] = -np.inf
        return p
    return right(some, *arguments)
"""

OF_SAMPLING = r"""
# large: what blocks of 4096 words add up to is the last one's sum
def quantile(log_p, u):
    p, before = np.exp(log_p - log_p.max()), 0.0
    for first in range(0, len(p), 4096):
        block = p[first : first + 4096]
        found = np.flatnonzero(before + np.cumsum(block) > u * p.sum())
        if len(found):
            return first + int(found[0])
        before = block.sum()
    return int(np.flatnonzero(p)[-1])
"""

OF_BLEU = r"""
# equals_oracle: hyphens and apostrophes left out
right = FUNCTION

def FUNCTION(candidates, references):
    def bare(words):
        return [word.replace("-", "").replace("'", "") for word in words]
    return right([*map(bare, candidates)], [[*map(bare, of)] for of in references])
"""

OF_WORDS = "greedy", "beam_search", "sample", "scheduled_sampling", "bleu"
WHOLE = [
    *(
        mutant
        for operator, text in {
            "multi_head_attention": OF_ATTENTION,
            "static_expansion": OF_STATIC,
            "dynamic_expansion": OF_DYNAMIC,
            "layer_norm": OF_LAYER_NORM,
            "lstm": OF_LSTM,
            "captioner": OF_CAPTIONER,
            "cross_entropy": OF_CROSS_ENTROPY,
            "point_wise_distance": OF_DISTANCE,
            "self_critical": OF_SELF_CRITICAL,
            "radam": OF_RADAM,
            "middle_out_step": OF_STEP,
            "mse": OF_MSE,
            "greedy": OF_SEARCH.replace("TILE", "256"),
            "beam_search": OF_SEARCH.replace("TILE", "1024"),
            "sample": OF_SAMPLING,
            "scheduled_sampling": OF_SAMPLING,
            "bleu": OF_BLEU,
        }.items()
        for mutant in mutants_of(text, operator, is_torch=operator not in OF_WORDS)
    ),
    *(
        Mutant(operator, slip, by, "F.scaled_dot_product_attention(q, k, v, see)", new, "attend")
        for operator, slip, by, new in FAR
    ),
    Mutant(
        "attentive_lstm",
        "a softmax of padding too",
        "padded_large_scores",
        SCORES,
        OF_PADDING,
        is_torch=True,
    ),
]
