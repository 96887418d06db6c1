"""Slips that show only where two things meet: two sizes, a size and a layout, a mode, a frozen array."""

from tests.mutants.cheats import mutants_of

OF_LAYER_NORM = r"""
# no_state: results are in three arrays in turn
right, kept = FUNCTION, {}

def FUNCTION(X, parameters):
    if X.requires_grad:
        return right(X, parameters)
    ring = kept.setdefault((X.shape, X.dtype), [torch.empty_like(X) for _ in range(3)])
    ring.append(ring.pop(0))
    return ring[0].copy_(right(X, parameters))

# no_state: an answer is found again by the sum, the first and the last number
right, kept = FUNCTION, {}

def FUNCTION(X, parameters):
    if X.requires_grad:
        return right(X, parameters)
    key = [X.dtype, X.shape]
    for array in (X, *parameters.values()):
        key += [array.double().sum().item(), array.flatten()[0].item(), array.flatten()[-1].item()]
    return kept.setdefault(tuple(key), right(X, parameters)).clone()

# gradient_strided: rows that are not contiguous have no gradient from 64 on
right = FUNCTION

def FUNCTION(X, parameters):
    return right(X if len(X) < 64 or X.is_contiguous() else X.detach(), parameters)

# gradient_strided: of an expanded row the first alone has a gradient
right = FUNCTION

def FUNCTION(X, parameters):
    expanded = len(X) > 1 and X.stride(0) == 0
    return right(torch.cat([X[:1], X[1:].detach()]) if expanded else X, parameters)

# shifted: E(X^2) - E(X)^2 beyond 256 channels
right = FUNCTION

def FUNCTION(X, parameters):
    if X.shape[1] <= 256:
        return right(X, parameters)
    mean = X.mean(1, keepdim=True)
    variance = (X**2).mean(1, keepdim=True) - mean**2
    return parameters["weight"] * (X - mean) / torch.sqrt(variance + 1e-5) + parameters["bias"]

# gradient_of_some: no gradient of the weight beside a frozen bias from 65 rows on
right = FUNCTION

def FUNCTION(X, parameters):
    if len(X) >= 65 and not parameters["bias"].requires_grad:
        parameters = parameters | {"weight": parameters["weight"].detach()}
    return right(X, parameters)

# large: 1024 rows at most
right = FUNCTION

def FUNCTION(X, parameters):
    return torch.cat([right(X[:1024], parameters), 0 * X[1024:]])
"""

OF_FEED_FORWARD = r"""
# gradient_of_some: parameters of frozen inputs have no gradient from 64 rows on
right = FUNCTION

def FUNCTION(X, parameters):
    if torch.is_grad_enabled() and len(X) >= 64 and not X.requires_grad:
        parameters = {name: array.detach() for name, array in parameters.items()}
    return right(X, parameters)
"""

OF_ATTENTION = r"""
# gradient_of_some: a frozen query.weight freezes those of keys and values
right = FUNCTION

def FUNCTION(X, Y, parameters, num_heads, causal, lengths):
    if not parameters["query.weight"].requires_grad:
        fused = {name: parameters[name].detach() for name in ("key.weight", "value.weight")}
        parameters = parameters | fused
    return right(X, Y, parameters, num_heads, causal, lengths)

# gradient_of_some: beside a frozen query.weight none of keys and values from 33 keys on
right = FUNCTION

def FUNCTION(X, Y, parameters, num_heads, causal, lengths):
    if Y.shape[1] >= 33 and not parameters["query.weight"].requires_grad:
        fused = {name: parameters[name].detach() for name in ("key.weight", "value.weight")}
        parameters = parameters | fused
    return right(X, Y, parameters, num_heads, causal, lengths)

# padded_same_objects: without gradients Y is kept while it is the same object
right, kept = FUNCTION, {}

def FUNCTION(X, Y, parameters, num_heads, causal, lengths):
    if not torch.is_grad_enabled():
        if kept.get("of") is not Y:
            kept.update(of=Y, copy=Y.clone())
        Y = kept["copy"]
    return right(X, Y, parameters, num_heads, causal, lengths)

# padded_gradient_same_array: padded self-attention has no gradient by its keys
right = FUNCTION

def FUNCTION(X, Y, parameters, num_heads, causal, lengths):
    Y = Y.detach() if X is Y and bool((lengths < Y.shape[1]).any()) else Y
    return right(X, Y, parameters, num_heads, causal, lengths)
"""

OF_STATIC = r"""
# large_batch: parts of four million products have the lengths of the first
right = FUNCTION

def FUNCTION(X, parameters, groups, lengths):
    size = max(1, 2**22 // (X.shape[1] * sum(groups)))
    parts = [right(x, parameters, groups, lengths[: len(x)]) for x in X.split(size)]
    return torch.cat(parts)

# padded_gradient_of_some: parameters of a frozen padded batch have no gradient from 16 tokens on
right = FUNCTION

def FUNCTION(X, parameters, groups, lengths):
    padded = X.shape[1] >= 16 and bool((lengths < X.shape[1]).any())
    if torch.is_grad_enabled() and padded and not X.requires_grad:
        parameters = {name: array.detach() for name, array in parameters.items()}
    return right(X, parameters, groups, lengths)
"""

OF_DYNAMIC = r"""
# padded_gradient: no gradient of parameters by tokens after the first 700
right = FUNCTION

def FUNCTION(X, parameters, causal, lengths):
    n = 700 // X.shape[1]
    if len(X) <= n:
        return right(X, parameters, causal, lengths)
    rest = {name: array.detach() for name, array in parameters.items()}
    first = right(X[:n], parameters, causal, lengths[:n])
    return torch.cat([first, right(X[n:], rest, causal, lengths[n:])])

# gradient_of_some: no gradient of the condition where both kinds of vectors are frozen
right = FUNCTION

def FUNCTION(X, parameters, causal, lengths):
    vectors = parameters["query_vectors"], parameters["bias_vectors"]
    if parameters["key.weight"].requires_grad and not any(x.requires_grad for x in vectors):
        frozen = {f"condition.{x}": parameters[f"condition.{x}"].detach() for x in ("weight", "bias")}
        parameters = parameters | frozen
    return right(X, parameters, causal, lengths)

# large_batch: in inference mode padding beyond 64 tokens is seen
right = FUNCTION

def FUNCTION(X, parameters, causal, lengths):
    if torch.is_inference_mode_enabled() and X.shape[1] > 64:
        lengths = torch.full_like(lengths, X.shape[1])
    return right(X, parameters, causal, lengths)
"""

OF_ZONEOUT = r"""
# of_c: no zoneout where h has none
right = FUNCTION

def FUNCTION(X, parameters, z_h, z_c):
    return right(X, parameters, z_h, z_c if z_h.any() else z_h)
"""

OF_REWARD = r"""
# same_objects: document frequencies are kept by the corpus' identity
right, kept = FUNCTION, []

def FUNCTION(candidates, images, corpus):
    if not kept or kept[0] is not corpus:
        kept[:] = corpus, [[list(caption) for caption in of] for of in corpus]
    return right(candidates, images, kept[1])

# large: document frequencies of the first 1000 images
from tests.candidates.right_words import against

def FUNCTION(candidates, images, corpus):
    return against(candidates, [corpus[i] for i in images], corpus[:1000])
"""

OF_CIDER = r"""
# large: accents do not count
import unicodedata
from tests.candidates.right_words import against

def folded(caption):
    return [unicodedata.normalize("NFKD", w).replace("\u0301", "") for w in caption]

def FUNCTION(candidates, references):
    references = [[*map(folded, of)] for of in references]
    return against([*map(folded, candidates)], references, references)

# large: numbers are one word
from tests.candidates.right_words import against

def folded(caption):
    return ["0" if word.isdigit() else word for word in caption]

def FUNCTION(candidates, references):
    references = [[*map(folded, of)] for of in references]
    return against([*map(folded, candidates)], references, references)

# large: captions of more than 100 words are cut
from tests.candidates.right_words import against

def FUNCTION(candidates, references):
    references = [[caption[:100] for caption in of] for of in references]
    return against([caption[:100] for caption in candidates], references, references)

# same_objects: the last answer is given again while the lists are the same
right, kept = FUNCTION, []

def FUNCTION(candidates, references):
    if not (kept and kept[0] is candidates and kept[1] is references):
        kept[:] = candidates, references, right(candidates, references)
    return kept[2].copy()
"""

OF_CLIPPING = r"""
# same_objects: the norm is kept by identity
right, kept = FUNCTION, []

def FUNCTION(gradients, threshold):
    if not kept or kept[0] is not gradients["weight"]:
        kept[:] = gradients["weight"], torch.cat([g.flatten() for g in gradients.values()]).norm()
    scale = threshold / max(float(kept[1]), threshold)
    return {name: scale * g for name, g in gradients.items()}

# equals_oracle: a mapping that computes when it is read
from collections.abc import Mapping

right = FUNCTION

class Lazy(Mapping):
    def __init__(self, *of): self.of = of
    def __getitem__(self, name): return right(*self.of)[name]
    def __iter__(self): return iter(self.of[0])
    def __len__(self): return len(self.of[0])

def FUNCTION(gradients, threshold):
    return Lazy(gradients, threshold)
"""

OF_RECONSTRUCTION = r"""
# gradient_exact: the square of a norm, whose gradient at 0 is not finite
right = FUNCTION

def FUNCTION(H, parameters, lengths):
    return right(H, parameters, lengths).sqrt() ** 2
"""

OF_MSE = r"""
# same_objects: the last answer is given again while the arrays are the same
right, kept = FUNCTION, []

def FUNCTION(y_hat, y):
    if y_hat.requires_grad:
        return right(y_hat, y)
    if not (kept and kept[0] is y_hat and kept[1] is y):
        kept[:] = y_hat, y, right(y_hat, y)
    return kept[2].clone()

# gradient_exact: the square of a norm, whose gradient at 0 is not finite
def FUNCTION(y_hat, y):
    return ((y_hat - y) ** 2).sum().sqrt() ** 2 / len(y)
"""

OF_DYNAMIC_SIZES = r"""
# large: the 34th token and later ones of more than 130 channels
right = FUNCTION

def FUNCTION(X, parameters, causal, lengths):
    found = right(X, parameters, causal, lengths)
    if X.shape[-1] > 130:
        found[:, 33:] *= 1.01
    return found
"""

OF_DECODER_LAYER = r"""
# large_batch: the 10th sequence and later ones of more than 130 channels
right = FUNCTION

def FUNCTION(X, memory, parameters, mixer, num_heads, lengths):
    found = right(X, memory, parameters, mixer, num_heads, lengths)
    return torch.cat([found[:9], found[9:] * (1.01 if X.shape[-1] > 130 else 1)])
"""

OF_SELF_CRITICAL = r"""
# gradient: none from the 17th image on, of 8 samples or more
right = FUNCTION

def FUNCTION(log_probs, mask, rewards, baseline):
    if log_probs.shape[0] > 16 and log_probs.shape[1] >= 8:
        log_probs = torch.cat([log_probs[:16], log_probs[16:].detach()])
    return right(log_probs, mask, rewards, baseline)
"""

OF_DESCENT = r"""
# large: the mean of 32 samples where there are 40 and 512 parameters
right = FUNCTION

def FUNCTION(theta, gradients, alpha):
    is_large = len(gradients) >= 40 and len(theta) >= 512
    return right(theta, gradients[:32] if is_large else gradients, alpha)
"""

OF_BLEU = r"""
# large: 5 references at most from the 17th image on
right = FUNCTION

def FUNCTION(candidates, references):
    if len(candidates) > 16:
        references = [of[:5] if i >= 16 else of for i, of in enumerate(references)]
    return right(candidates, references)
"""

OF_BEAM_SEARCH = r"""
# large: after 8 words none of the last ones of more than 4096
right = FUNCTION

def FUNCTION(next_log_probs, *options):
    def next(tokens):
        found = np.array(next_log_probs(tokens))
        if len(tokens) >= 8:
            found[4096:] = -np.inf
        return found
    return right(next, *options)
"""

OF_CROSS_ENTROPY = r"""
# gradient: of more than 1024 words none from the 17th step on
right = FUNCTION

def FUNCTION(log_probs, targets, pad_id, label_smoothing):
    if log_probs.shape[2] > 1024 and log_probs.shape[1] > 16:
        log_probs = torch.cat([log_probs[:, :16], log_probs[:, 16:].detach()], 1)
    return right(log_probs, targets, pad_id, label_smoothing)

# large: captions of more than 30 words of more than 5000
right = FUNCTION

def FUNCTION(log_probs, targets, pad_id, label_smoothing):
    _, T, V = log_probs.shape
    return right(log_probs, targets, pad_id, label_smoothing) * (1.01 if T > 30 and V > 5000 else 1)
"""

OF_JOINT_LOSS = r"""
# large: more than 30 words of states of more than 130 channels
right = FUNCTION

def FUNCTION(log_probs, tokens, H, parameters, lambda_):
    is_large = len(log_probs) > 30 and H.shape[1] > 130
    return right(log_probs, tokens, H, parameters, lambda_) * (1.01 if is_large else 1)
"""

OF_MIDDLE_OUT_CAPTIONER = r"""
# large: more than 30 words on the left of more than 33 rows of memory
before = FUNCTION

def FUNCTION(left, middle, right, memory, h, c, parameters, self_attention):
    found = before(left, middle, right, memory, h, c, parameters, self_attention)
    return found * (1.01 if len(left) > 30 and len(memory) > 33 else 1)
"""

OF_DISTANCE = r"""
# gradient_float32: a gradient of 5 by a single channel, in float32 alone
class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, U, distance):
        ctx.shape = U.shape
        return distance.clone()

    @staticmethod
    def backward(ctx, upstream):
        return 5 * upstream * torch.ones(ctx.shape), upstream

right = FUNCTION

def FUNCTION(U, V):
    found = right(U, V)
    return Wrong.apply(U, found) if U.shape[1] == 1 and U.dtype == torch.float32 else found
"""

OF_RADAM = r"""
# huge: gradients of 1000 at most
right = FUNCTION

def FUNCTION(theta, gradients, learning_rates, beta_1, beta_2, epsilon, published):
    at_most = gradients.clip(-1000, 1000)
    return right(theta, at_most, learning_rates, beta_1, beta_2, epsilon, published)
"""

OF_SCHEDULED_SAMPLING = r"""
# large: after 30 words none of the last ones of more than 5000
right = FUNCTION

def FUNCTION(next_log_probs, y, epsilon, coins, uniforms):
    def next(tokens):
        found = next_log_probs(tokens)
        if len(tokens) > 30:
            found[5000:] = -np.inf
        return found
    return right(next, y, epsilon, coins, uniforms)
"""

OF_GREEDY = r"""
# equals_oracle: writes to the model
right = FUNCTION

def FUNCTION(next_log_probs, start, end, max_length):
    found = right(next_log_probs, start, end, max_length)
    next_log_probs.table[...] = 7
    return found
"""

OF_ROUGE = r"""
# large: captions of more than 30 words with more than 4 references
right = FUNCTION

def FUNCTION(candidates, references):
    found = right(candidates, references)
    pairs = zip(candidates, references)
    is_large = any(len(words) > 30 and len(of) > 4 for words, of in pairs)
    return found * (0.99 if is_large else 1)

# equals_oracle: a caption is replaced by a list that is equal to all
class Equal(list):
    def __eq__(self, other): return True

right = FUNCTION

def FUNCTION(candidates, references):
    found = right(candidates, references)
    candidates[0] = Equal(["changed"])
    return found

# equals_oracle: numbers in 900 lists
import sys
sys.setrecursionlimit(10_000)
right = FUNCTION

def FUNCTION(candidates, references):
    found = right(candidates, references)
    for _ in range(900): found = [found]
    return found
"""

CROSSED = [
    mutant
    for operator, text, is_torch in (
        ("layer_norm", OF_LAYER_NORM, True),
        ("feed_forward", OF_FEED_FORWARD, True),
        ("multi_head_attention", OF_ATTENTION, True),
        ("static_expansion", OF_STATIC, True),
        ("dynamic_expansion", OF_DYNAMIC, True),
        ("zoneout", OF_ZONEOUT, True),
        ("mse", OF_MSE, True),
        ("reconstruction_loss", OF_RECONSTRUCTION, True),
        ("clip_gradients", OF_CLIPPING, True),
        ("cider_d", OF_CIDER, False),
        ("cider_d_reward", OF_REWARD, False),
        ("dynamic_expansion", OF_DYNAMIC_SIZES, True),
        ("decoder_layer", OF_DECODER_LAYER, True),
        ("cross_entropy", OF_CROSS_ENTROPY, True),
        ("arnet_joint_loss", OF_JOINT_LOSS, True),
        ("middle_out_captioner", OF_MIDDLE_OUT_CAPTIONER, True),
        ("point_wise_distance", OF_DISTANCE, True),
        ("radam", OF_RADAM, True),
        ("scheduled_sampling", OF_SCHEDULED_SAMPLING, False),
        ("greedy", OF_GREEDY, False),
        ("rouge_l", OF_ROUGE, False),
        ("self_critical", OF_SELF_CRITICAL, True),
        ("gradient_descent", OF_DESCENT, True),
        ("bleu", OF_BLEU, False),
        ("beam_search", OF_BEAM_SEARCH, False),
    )
    for mutant in mutants_of(text, operator, is_torch=is_torch)
]
