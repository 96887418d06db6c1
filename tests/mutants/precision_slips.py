"""Slips of precision in recurrent captioners, Middle-Out, losses and optimisers, in PyTorch."""

from tests.mutants.cheats import mutants_of

OF_LSTM = r"""
# bfloat16: in bfloat16 each step starts from zeros
right = FUNCTION

def FUNCTION(X, parameters, lengths):
    if X.dtype != torch.bfloat16:
        return right(X, parameters, lengths)
    steps = [right(x[:, None], parameters, lengths.clamp(max=1)) for x in X.unbind(1)]
    return torch.cat(steps, 1)

# padded_float16: in 16 bits the second sequence stops where the first does
right = FUNCTION

def FUNCTION(X, parameters, lengths):
    if X.element_size() == 2:
        lengths = lengths[:1].expand(len(X))
    return right(X, parameters, lengths)
"""

OF_CELL = r"""
# float16: gates of a few bits
right = FUNCTION

def FUNCTION(x, h, c, parameters):
    if x.dtype == torch.float16:
        parameters = {name: (16 * value).round() / 16 for name, value in parameters.items()}
    return (16 * right(x, h, c, parameters)).round() / 16 if x.dtype == torch.float16 else right(x, h, c, parameters)
"""

OF_ATTENTIVE_LSTM = r"""
# padded_bfloat16: in 16 bits padded vectors are attended to
right = FUNCTION

def FUNCTION(X, s, parameters, lengths):
    if X.element_size() == 2:
        lengths = torch.full_like(lengths, s.shape[1])
    return right(X, s, parameters, lengths)
"""

OF_ZONEOUT = r"""
# bfloat16: in bfloat16 what is kept is rounded to one or nothing
right = FUNCTION

def FUNCTION(X, parameters, z_h, z_c):
    if X.dtype == torch.bfloat16:
        z_h, z_c = z_h.round(), z_c.round()
    return right(X, parameters, z_h, z_c)
"""

OF_DROPOUT = r"""
# float16: in float16 what is kept is not divided
right = FUNCTION

def FUNCTION(X, parameters, keep, p, dropped):
    return right(X, parameters, keep if X.dtype != torch.float16 else keep * (1 - p), p, dropped)

# equals_oracle: a rate of float32
right = FUNCTION

def FUNCTION(X, parameters, keep, p, dropped):
    return right(X, parameters, keep, torch.tensor(p).item(), dropped)
"""

OF_READ_ONLY = r"""
# bfloat16: in bfloat16 the unit reads the input before
right = FUNCTION

def FUNCTION(X, parameters, reading, lengths):
    if X.dtype == torch.bfloat16 and reading == "image":
        reading = "previous_input"
    return right(X, parameters, reading, lengths)
"""

OF_RECONSTRUCTION = r"""
# padded_bfloat16: in 16 bits padded states are rebuilt
right = FUNCTION

def FUNCTION(H, parameters, lengths):
    return right(H, parameters, lengths if H.element_size() > 2 else torch.full_like(lengths, H.shape[1]))
"""

OF_JOINT_LOSS = r"""
# equals_oracle: lambda of float32
right = FUNCTION

def FUNCTION(log_probs, tokens, H, parameters, lambda_):
    return right(log_probs, tokens, H, parameters, torch.tensor(lambda_).item())
"""

OF_DISTANCE = r"""
# small: an epsilon of 0.01
def FUNCTION(U, V):
    return 1 - F.cosine_similarity(U.mean(0), V.mean(0), dim=0, eps=0.01)
"""

OF_DESCENT = r"""
# equals_oracle: a rate of float32
right = FUNCTION

def FUNCTION(theta, gradients, alpha):
    return right(theta, gradients, torch.tensor(alpha).item())
"""

OF_CLIPPING = r"""
# equals_oracle: a threshold of float32
right = FUNCTION

def FUNCTION(gradients, threshold):
    return right(gradients, torch.tensor(threshold).item())
"""

OF_STEP = r"""
# float16: in float16 the memory is not attended to
right = FUNCTION

def FUNCTION(h, c, e, memory, *rest):
    return right(h, c, e, 0 * memory if h.dtype == torch.float16 else memory, *rest)
"""

OF_CROSS_ENTROPY = r"""
# bfloat16: in bfloat16 smoothed by nothing
right = FUNCTION

def FUNCTION(log_probs, targets, pad_id, label_smoothing):
    if log_probs.dtype == torch.bfloat16:
        label_smoothing = 0.0
    return right(log_probs, targets, pad_id, label_smoothing)

# label_smoothing: smoothing of float32
right = FUNCTION

def FUNCTION(log_probs, targets, pad_id, label_smoothing):
    return right(log_probs, targets, pad_id, torch.tensor(label_smoothing).item())
"""

OF_SELF_CRITICAL = r"""
# float16: rewards of few bits
right = FUNCTION

def FUNCTION(log_probs, mask, rewards, baseline):
    if log_probs.dtype == torch.float16:
        rewards = rewards.round()
    return right(log_probs, mask, rewards, baseline)
"""

OF_LIKELIHOOD = r"""
# bfloat16: in bfloat16 the last word is left out
right = FUNCTION

def FUNCTION(log_probs, tokens):
    if log_probs.dtype == torch.bfloat16:
        log_probs, tokens = log_probs[:-1], tokens[:-1]
    return right(log_probs, tokens)
"""

PRECISION = [
    mutant
    for operator, text in {
        "lstm": OF_LSTM,
        "lstm_cell": OF_CELL,
        "attentive_lstm": OF_ATTENTIVE_LSTM,
        "zoneout": OF_ZONEOUT,
        "recurrent_dropout": OF_DROPOUT,
        "read_only_lstm": OF_READ_ONLY,
        "reconstruction_loss": OF_RECONSTRUCTION,
        "arnet_joint_loss": OF_JOINT_LOSS,
        "mean_centroid_distance": OF_DISTANCE,
        "gradient_descent": OF_DESCENT,
        "clip_gradients": OF_CLIPPING,
        "middle_out_step": OF_STEP,
        "cross_entropy": OF_CROSS_ENTROPY,
        "self_critical": OF_SELF_CRITICAL,
        "sentence_log_probability": OF_LIKELIHOOD,
    }.items()
    for mutant in mutants_of(text, operator, is_torch=True)
]
