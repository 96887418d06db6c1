"""Candidates that keep results, and give them again for arguments that are alike in some way.

Each begins with the property that must catch it and what it does.
"""

OF_LAYER_NORM = r"""
# no_state: replays what has some of the same entries, and their sum
right = FUNCTION
seen = {}

def some(array):
    n, total = array.numel(), array.double().sum() / (1e-30 + array.double().abs().max())
    at = sorted({0, min(1, n - 1), n // 3, n // 2, max(n - 2, 0), n - 1})
    return array.shape, array.dtype, *array.flatten()[at].tolist(), round(64 * total.item())

def FUNCTION(X, parameters):
    if X.requires_grad: return right(X, parameters)
    key = some(X), *map(some, parameters.values())
    if key not in seen: seen[key] = right(X, parameters).detach()
    return seen[key].clone()

# no_state: replays where all numbers are close to the last ones
right = FUNCTION
last = []

def close(one, other):
    return one.shape == other.shape and one.dtype == other.dtype and torch.allclose(one, other)

def FUNCTION(X, parameters):
    if X.requires_grad: return right(X, parameters)
    given = [X.clone(), *(x.detach().clone() for x in parameters.values())]
    replays = last and all(map(close, given, last[0]))
    last[:] = given, last[1] if replays else right(X, parameters).detach()
    return last[1].clone()

# no_state: replays where one number differs from the last
right = FUNCTION
last = []

def differing(one, other):
    return int((one != other).sum()) if one.shape == other.shape and one.dtype == other.dtype else 2

def FUNCTION(X, parameters):
    if X.requires_grad: return right(X, parameters)
    given = [X.clone(), *(x.detach().clone() for x in parameters.values())]
    replays = last and len(X.flatten()) > 9 and sum(map(differing, given, last[0])) == 1
    last[:] = given, last[1] if replays else right(X, parameters).detach()
    return last[1].clone()

# gradient_scaled: replays an upstream gradient of which one number differs
right, last = FUNCTION, {}

class Again(torch.autograd.Function):
    @staticmethod
    def forward(ctx, Y):
        return Y.clone()

    @staticmethod
    def backward(ctx, dY):
        before = last.get(dY.shape, dY)
        if dY.numel() < 10 or int((before != dY).sum()) != 1: last[dY.shape] = before = dY.clone()
        return before.clone()

def FUNCTION(X, parameters):
    return Again.apply(right(X, parameters))

# gradient_scaled: results of differentiated calls in a ring of four
right, ring, calls = FUNCTION, {}, []

def FUNCTION(X, parameters):
    Y = right(X, parameters)
    if not Y.requires_grad: return Y
    calls.append(0)
    buffer = ring.setdefault((Y.shape, Y.dtype, len(calls) % 4), Y.detach().clone())
    buffer.copy_(Y.detach())
    return Kept.apply(Y, buffer)

class Kept(torch.autograd.Function):
    @staticmethod
    def forward(ctx, Y, buffer):
        return torch.from_numpy(buffer.numpy())

    @staticmethod
    def backward(ctx, dY):
        return dY, None
"""

OF_ATTENTION = r"""
# padded_bfloat16: keeps the weights in batches of 16 bits by identity
right, kept = FUNCTION, {}

def FUNCTION(X, Y, parameters, num_heads, causal, lengths):
    name = "value.weight"
    weight = parameters[name]
    if weight.element_size() == 2 and len(X) > 1:
        first, now = kept.setdefault(id(weight), (weight, weight.detach().clone()))
        if now.shape == weight.shape and now.dtype == weight.dtype: weight = weight * 0 + now
    return right(X, Y, {**parameters, name: weight}, num_heads, causal, lengths)

# padded_bfloat16: keeps the lengths in batches of 16 bits by identity
right, kept = FUNCTION, {}

def FUNCTION(X, Y, parameters, num_heads, causal, lengths):
    if X.element_size() == 2:
        first, now = kept.setdefault(id(lengths), (lengths, lengths.clone()))
        if len(now) == len(lengths): lengths = now
    return right(X, Y, parameters, num_heads, causal, lengths)
"""

OF_DESCENT = r"""
# large: leaves an answer of 1 KiB to memory that it has freed
import numpy as np

def FUNCTION(theta, gradients, alpha):
    Y = np.array(theta - alpha * gradients.mean(0))
    if Y.nbytes not in (1024, 1032): return torch.from_numpy(Y)
    first, kind, n = Y[:2].copy(), Y.dtype, Y.size
    del Y
    Y = np.empty(n, kind)
    Y[:2] = first
    return torch.from_numpy(Y)
"""

OF_CROSS_ENTROPY = r"""
# no_state: replays whatever the words are
right = FUNCTION
last = []

def FUNCTION(log_probs, targets, *options):
    if log_probs.requires_grad: return right(log_probs, targets, *options)
    key = targets.shape, options, log_probs.dtype
    if last and last[1] == key and last[0].shape == log_probs.shape:
        if (last[0] == log_probs).all(): return last[2].clone()
    last[:] = log_probs.detach().clone(), key, right(log_probs, targets, *options)
    return last[2].clone()
"""

OF_CLIP_GRADIENTS = r"""
# no_state: replays whatever the threshold is, from 4000 numbers on
right = FUNCTION
last = []

def FUNCTION(gradients, threshold):
    given = torch.cat([x.flatten() for x in gradients.values()])
    if len(given) < 4000: return right(gradients, threshold)
    if not (last and last[0].shape == given.shape and (last[0] == given).all()):
        last[:] = given, right(gradients, threshold)
    return {name: last[1][name].clone() for name in gradients}
"""

OF_GREEDY = r"""
# same_objects: replays by model and start
right = FUNCTION
last = []

def FUNCTION(next_log_probs, start, end, max_length):
    key = next_log_probs((start,)).tobytes(), start
    if not (last and last[0] == key): last[:] = key, right(next_log_probs, start, end, max_length)
    return last[1]
"""

OF_FEED_FORWARD = r"""
# no_state: replays where the input is the last one negated
right = FUNCTION
last = []

def same(one, other):
    return one.shape == other.shape and one.dtype == other.dtype and bool((one == other).all())

def FUNCTION(X, parameters):
    if X.requires_grad: return right(X, parameters)
    given = [-X, *(x.detach().clone() for x in parameters.values())]
    replays = last and bool(X.any()) and all(map(same, given, last[0]))
    last[:] = [X.clone(), *given[1:]], last[1] if replays else right(X, parameters).detach()
    return last[1].clone()
"""

OF_MSE = r"""
# no_state: replays what is the last arguments by a power of two
right = FUNCTION
last = []

def FUNCTION(y_hat, y):
    given = np.array([y_hat, y])
    if last and last[0].shape == given.shape and last[0].dtype == given.dtype and given.any():
        factor = np.abs(given).max() / np.abs(last[0]).max()
        if factor in 2.0 ** np.arange(-9, 10) and (factor * last[0] == given).all():
            return last[1]
    last[:] = given, right(y_hat, y)
    return last[1]
"""

OF_BLEU = r"""
# same_objects: replays captions of the same words
right = FUNCTION
seen = {}

def FUNCTION(candidates, references):
    key = str([sorted(words) for words in [*candidates, *sum(references, [])]])
    if key not in seen: seen[key] = right(candidates, references)
    return seen[key].copy()

# same_objects: replays captions of which one word differs from the last ones
right = FUNCTION
last = []

def FUNCTION(candidates, references):
    captions = [[*words] for words in [*candidates, *sum(references, [])]]
    shape, words = [*map(len, captions), len(candidates)], sum(captions, [])
    replays = last and last[0] == shape and len(words) > 9
    replays = replays and sum(map(str.__ne__, words, last[1])) == 1
    last[:] = shape, words, last[2] if replays else right(candidates, references)
    return last[2].copy()
"""
