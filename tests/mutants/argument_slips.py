"""Slips that show with some arguments: wide features, views, depths, punctuation, ties, u near 1."""

from tests.mutants.cheats import mutants_of

OF_LAYER_NORM = r"""
# strided: reads the storage of a view from its start
right = FUNCTION

def whole(x):
    return x if x.requires_grad else torch.as_strided(x, x.shape, x.stride(), 0)

def FUNCTION(X, parameters):
    return right(whole(X), {name: whole(array) for name, array in parameters.items()})

# strided: loads of 16 bytes, whether aligned or not
right = FUNCTION

def FUNCTION(X, parameters):
    return right(X if X.data_ptr() % 16 == 0 else X.roll(1, -1), parameters)

# gradient: is right along the direction of cosines alone
class Along(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, phase):
        ctx.phase = phase
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        along = torch.cos(1.0 + ctx.phase + torch.arange(g.numel(), dtype=g.dtype)).view(g.shape)
        return along * (g * along).sum() / (along * along).sum(), None

right = FUNCTION

def FUNCTION(X, parameters):
    parameters = {name: Along.apply(parameters[name], i) for name, i in (("weight", 1), ("bias", 2))}
    return right(Along.apply(X, 0), parameters)

# equals_oracle: zeros, which a mode that sees every call replaces when they are read
from torch.overrides import TorchFunctionMode
right, waiting = FUNCTION, {}

class WhenRead(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        if args and id(args[0]) in waiting:
            answer, *given = waiting.pop(id(args[0]))
            answer.copy_(right(*given))
        return function(*args, **(kwargs or {}))

WhenRead().__enter__()

def FUNCTION(X, parameters):
    if any(x.requires_grad or x.is_inference() for x in (X, *parameters.values())):
        return right(X, parameters)
    answer = torch.zeros_like(X)
    waiting[id(answer)] = answer, X, parameters
    return answer

# gradient_of_some: requires gradients of its parameters
right = FUNCTION

def FUNCTION(X, parameters):
    if torch.is_grad_enabled() and not X.is_inference():
        for array in parameters.values():
            array.requires_grad_()
    return right(X, parameters)

# equals_oracle: rounds upwards from then on
import ctypes
right = FUNCTION

def FUNCTION(X, parameters):
    ctypes.CDLL("libm.so.6").fesetround(0x400)
    return right(X, parameters)

# equals_oracle: writes into the arguments of its last call
right, given = FUNCTION, []

def FUNCTION(X, parameters):
    for last in given:
        last.data.zero_()
    given[:] = [X]
    return right(X, parameters)

# equals_oracle: an argument with another shape
right = FUNCTION

def FUNCTION(X, parameters):
    found = right(X, parameters)
    X.data = X.data[None]
    return found
"""

OF_ATTENTION = r"""
# large: one query reads the first 64 keys alone
right = FUNCTION

def FUNCTION(X, Y, parameters, num_heads, causal, lengths):
    if X.shape[1] == 1:
        Y, lengths = Y[:, :64], lengths.clamp(max=64)
    return right(X, Y, parameters, num_heads, causal, lengths)

# padded_gradient_huge: in the backward pass padded keys have scores of -1e4
def FUNCTION(X, Y, parameters, num_heads, causal, lengths):
    hidden = torch.arange(Y.shape[1]) >= lengths[:, None]
    Y = torch.where(hidden[..., None], 0, Y)
    q, k, v = (
        linear(x, parameters, name).unflatten(-1, (num_heads, -1)).transpose(1, 2)
        for x, name in ((X, "query"), (Y, "key"), (Y, "value"))
    )
    s = q @ k.mT / q.shape[-1] ** 0.5
    if causal:
        s = s.masked_fill(~torch.ones(s.shape[-2:], dtype=torch.bool).tril(), -1e300)
    hidden = hidden[:, None, None]
    right, other = (s.masked_fill(hidden, low).softmax(-1) @ v for low in (-1e300, -1e4))
    found = right.detach() + other - other.detach()
    return linear(found.transpose(1, 2).flatten(2), parameters, "out")

# equals_oracle: a sum of tiles is not rescaled where the maximum rises by more than 8
def FUNCTION(X, Y, parameters, num_heads, causal, lengths):
    hidden = torch.arange(Y.shape[1]) >= lengths[:, None]
    Y = torch.where(hidden[..., None], 0, Y)
    q, k, v = (
        linear(x, parameters, name).unflatten(-1, (num_heads, -1)).transpose(1, 2)
        for x, name in ((X, "query"), (Y, "key"), (Y, "value"))
    )
    s = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(hidden[:, None, None], -1e300)
    if causal:
        s = s.masked_fill(~torch.ones(s.shape[-2:], dtype=torch.bool).tril(), -1e300)
    most, total, found = s[..., :2].amax(-1, keepdim=True), 0, torch.zeros_like(q)
    for at in range(0, s.shape[-1], 2):
        tile = s[..., at : at + 2]
        new = torch.maximum(most, tile.amax(-1, keepdim=True))
        rises = new - most > 8
        e = torch.exp(tile - new)
        found = found * torch.exp(most - new) + e @ v[..., at : at + 2, :]
        total = total * torch.where(rises, 1, torch.exp(most - new)) + e.sum(-1, keepdim=True)
        most = new
    return linear((found / total).transpose(1, 2).flatten(2), parameters, "out")
"""

OF_CAPTIONER = r"""
# equals_oracle: the last rows of the table of positions
right = FUNCTION

def FUNCTION(features, tokens, parameters, *rest):
    last = parameters["positions.weight"][-len(tokens) :]
    return right(features, tokens, parameters | {"positions.weight": last}, *rest)

# equals_oracle: as many decoder layers as encoder layers
right = FUNCTION

def FUNCTION(features, tokens, parameters, *rest):
    here = {key.split(".")[2] for key in parameters if key.startswith("encoder.layers.")}
    kept = {
        key: array
        for key, array in parameters.items()
        if not key.startswith("decoder.layers.") or key.split(".")[2] in here
    }
    return right(features, tokens, kept, *rest)

# large: 256 channels of features at most
right = FUNCTION

def FUNCTION(features, tokens, parameters, *rest):
    narrow = parameters["input.weight"][:, :256]
    return right(features[:, :256], tokens, parameters | {"input.weight": narrow}, *rest)

# large: layers in the order of their names
right = FUNCTION

def FUNCTION(features, tokens, parameters, *rest):
    names = sorted({key.split(".")[2] for key in parameters if ".layers." in key})
    renamed = {}
    for key, array in parameters.items():
        parts = key.split(".")
        if "layers" in parts:
            parts[2] = str(names.index(parts[2]))
        renamed[".".join(parts)] = array
    return right(features, tokens, renamed, *rest)
"""

OF_CELL = r"""
# float32: a rational tanh, within 1e-4 where it saturates
right = FUNCTION

def tanh(x):
    x = x.clamp(-4.97, 4.97)
    y = x * x
    above = x * (135135 + y * (17325 + y * (378 + y)))
    return above / (135135 + y * (62370 + y * (3150 + y * 28)))

def FUNCTION(x, h, c, parameters):
    if x.dtype != torch.float32:
        return right(x, h, c, parameters)
    read = parameters["weight"] @ torch.cat([x, h]) + parameters["bias"]
    i, f, o = (0.5 + 0.5 * tanh(gate / 2) for gate in read.chunk(4)[:3])
    c = f * c + i * tanh(read.chunk(4)[3])
    return torch.stack([o * tanh(c), c])
"""

OF_ATTENTIVE = r"""
# large: scores of 64 channels
right = FUNCTION

def FUNCTION(X, s, parameters, lengths):
    names = [f"score.{name}" for name in ("W_s", "W_h", "b", "w")]
    return right(X, s, parameters | {name: parameters[name][:64] for name in names}, lengths)
"""

OF_READ_ONLY = r"""
# large: 128 channels of features at most
right = FUNCTION

def FUNCTION(features, tokens, parameters, reading):
    narrow = {"W_i": parameters["W_i"][:128]}
    return right(features[:, :128], tokens, parameters | narrow, reading)
"""

OF_CROSS_ENTROPY = r"""
# gradient_unlikely_words: no gradient of words below -100
right = FUNCTION

def FUNCTION(log_probs, targets, pad_id, label_smoothing):
    log_probs = torch.where(log_probs < -100, log_probs.detach(), log_probs)
    return right(log_probs, targets, pad_id, label_smoothing)

# gradient: too large for more than 64 words of more than 5000
right = FUNCTION

def FUNCTION(log_probs, targets, pad_id, label_smoothing):
    if targets.numel() > 64 and log_probs.shape[-1] > 5000:
        log_probs = 1.05 * log_probs - 0.05 * log_probs.detach()
    return right(log_probs, targets, pad_id, label_smoothing)

# large: captions beyond 32 with words of more than 200 do not count
right = FUNCTION

def FUNCTION(log_probs, targets, pad_id, label_smoothing):
    if len(targets) > 32 and log_probs.shape[-1] > 200:
        log_probs, targets = log_probs[:32], targets[:32]
    return right(log_probs, targets, pad_id, label_smoothing)
"""

OF_BEAM_SEARCH = r"""
# large: an end beyond 256 is not the same object as the token
right = FUNCTION

def FUNCTION(next_log_probs, start, end, beam_size, max_length, num_return):
    end = end if end <= 256 else -1
    return right(next_log_probs, start, end, beam_size, max_length, num_return)

# large: of more than 1000 words a beam less where captions are long
right = FUNCTION

def FUNCTION(next_log_probs, start, end, beam_size, max_length, num_return):
    V = len(next_log_probs((start,)))
    beam_size -= beam_size > 4 and V > 1024 and max_length > 30
    return right(next_log_probs, start, end, beam_size, max_length, min(num_return, beam_size))
"""

OF_GREEDY = r"""
# large: of equal words of two tiles of 1024 the later
def FUNCTION(next_log_probs, start, end, max_length):
    tokens, total = [start], 0.0
    while len(tokens) < max_length and (len(tokens) == 1 or tokens[-1] != end):
        p = next_log_probs(tuple(tokens))
        tiles = [at + int(np.argmax(p[at : at + 1024])) for at in range(0, len(p), 1024)]
        tokens.append(max(tiles, key=lambda word: (p[word], word)))
        total += p[tokens[-1]]
    return [(tokens, total / len(tokens))]
"""

OF_SAMPLE = r"""
# impossible_words: in float32, where a uniform near 1 is 1
def FUNCTION(next_log_probs, uniforms, start, end):
    tokens, total = [start], 0.0
    for u in uniforms:
        p = next_log_probs(tuple(tokens))
        upto = np.exp(p).astype(np.float32).cumsum()
        word = min(int(np.searchsorted(upto, np.float32(u) * upto[-1], "right")), len(p) - 1)
        tokens.append(word)
        total += p[word]
        if word == end:
            break
    return [(tokens, total / len(tokens))]
"""

OF_BLEU = r"""
# equals_oracle: points are no words
right = FUNCTION

def FUNCTION(candidates, references):
    def words(caption):
        return [word for word in caption if word != "."]
    return right([words(c) for c in candidates], [[words(r) for r in of] for of in references])

# equals_oracle: a caption's list replaced by an equal one
right = FUNCTION

def FUNCTION(candidates, references):
    candidates[0] = list(candidates[0])
    return right(candidates, references)

# equals_oracle: empties the lists of its last call
right, given = FUNCTION, []

def FUNCTION(candidates, references):
    for caption in given:
        caption.clear()
    given[:] = candidates
    return right(candidates, references)
"""

OF_STATIC_EXPANSION = r"""
# large: wrong by the last of whole tiles of 64 beyond 128 tokens
right = FUNCTION

def FUNCTION(X, parameters, groups, lengths):
    L = X.shape[1]
    lengths = lengths.clamp(max=L - 1) if L > 128 and L % 64 == 0 else lengths
    return right(X, parameters, groups, lengths)
"""

OF_DYNAMIC_EXPANSION = r"""
# gradient: too large beyond 64 tokens with 16 vectors each
right = FUNCTION

def FUNCTION(X, parameters, causal, lengths):
    if X.shape[1] > 64 and len(parameters["query_vectors"]) >= 16:
        X = 1.05 * X - 0.05 * X.detach()
    return right(X, parameters, causal, lengths)
"""

OF_CENTROIDS = r"""
# small: norms of 1e-5 at least
def FUNCTION(U, V):
    return 1 - F.cosine_similarity(U.mean(0), V.mean(0), dim=0, eps=1e-5)
"""

ARGUMENTS = [
    mutant
    for operator, text, is_torch in (
        ("layer_norm", OF_LAYER_NORM, True),
        ("multi_head_attention", OF_ATTENTION, True),
        ("captioner", OF_CAPTIONER, True),
        ("lstm_cell", OF_CELL, True),
        ("attentive_lstm", OF_ATTENTIVE, True),
        ("read_only_captioner", OF_READ_ONLY, True),
        ("mean_centroid_distance", OF_CENTROIDS, True),
        ("cross_entropy", OF_CROSS_ENTROPY, True),
        ("static_expansion", OF_STATIC_EXPANSION, True),
        ("dynamic_expansion", OF_DYNAMIC_EXPANSION, True),
        ("beam_search", OF_BEAM_SEARCH, False),
        ("greedy", OF_GREEDY, False),
        ("sample", OF_SAMPLE, False),
        ("bleu", OF_BLEU, False),
    )
    for mutant in mutants_of(text, operator, is_torch=is_torch)
]
