"""Slips that ordinary numbers do not show: clipped gates, exponentials that overflow, epsilons."""

from tests.mutants.expansion_slips import Slip

CLIPPED = """def sigmoid(x):
    return 0.5 * (1 + np.tanh(np.clip(x, -20, 20) / 2))"""
CUT_OFF = """def sigmoid(x):
    return np.where(np.abs(x) > 20, x > 0, 0.5 * (1 + np.tanh(x / 2)))"""
OVERFLOWING = """def sigmoid(x):
    return np.exp(x) / (1 + np.exp(x))"""
CLIPPED_CELL = """def lstm_cell(x, h, c, parameters):
    i, f, o, g = np.split(parameters["weight"] @ np.r_[x, h] + parameters["bias"], 4)
    i, f, o = (1 / (1 + np.exp(-np.clip(z, -20, 20))) for z in (i, f, o))
    c = f * c + i * np.tanh(g)
    return np.stack([o * np.tanh(c), c])"""
GATES: list[Slip] = [
    ("gates clipped at 20", "huge", "", CLIPPED),
    ("gates cut off at 20", "huge", "", CUT_OFF),
    ("gates that overflow", "huge", "", OVERFLOWING),
]
SUMMED_GATES = [GATES[0], GATES[2]]
"""A cut off only shows between 20 and 23, which is less than the rounding of a sum."""

LSTM_CELL: list[Slip] = [
    ("the memory cell clipped at 3", "huge", "np.tanh(g)\n", "np.tanh(g)\n    c = np.clip(c, -3, 3)\n"),
    ("the memory cell clipped at 50", "huge", "np.tanh(g)\n", "np.tanh(g)\n    c = np.clip(c, -50, 50)\n"),
    ("a tanh of the memory cell that overflows", "huge", "np.tanh(c), c",
     "(1 - np.exp(-2 * c)) / (1 + np.exp(-2 * c)), c"),
    *GATES,
    ("the forget gate clipped at 20", "huge", "sigmoid(f)", "sigmoid(np.clip(f, -20, 20))"),
    ("the input gate clipped at 20", "huge", "sigmoid(i)", "sigmoid(np.clip(i, -20, 20))"),
    ("the output gate clipped at 20", "huge", "sigmoid(o)", "sigmoid(np.clip(o, -20, 20))"),
    ("the update clipped at 10", "huge", "np.tanh(g)", "np.tanh(np.clip(g, -10, 10))"),
    ("a tanh that overflows", "huge", "np.tanh(g)",
     "((np.exp(2 * g) - 1) / (np.exp(2 * g) + 1))"),
]  # fmt: skip


def _clipped(gate: str) -> Slip:
    return (f"the gate {gate} clipped at 20", "huge", "c = f * c",
            f"{gate} = np.clip({gate}, 1 / (1 + np.exp(20)), 1 / (1 + np.exp(-20)))\n    c = f * c")  # fmt: skip


EXP = "np.exp(scores - scores.max())"
ATTENTIVE: list[Slip] = [
    *GATES,
    ("a softmax that overflows", "large_scores", EXP, "np.exp(scores)"),
    ("scores clipped at 50", "large_scores", EXP, "np.exp(np.clip(scores, -50, 50))"),
]

LOG_SUM = "z - np.log(np.exp(z).sum(1, keepdims=True))"
READ_ONLY: list[Slip] = [
    *SUMMED_GATES,
    ("a log-softmax that overflows", "large_scores", "z - z.max(1, keepdims=True)", "1 * z"),
    ("one maximum for all steps", "large_scores", "z.max(1, keepdims=True)", "z.max()"),
    ("the logarithm of a softmax", "large_scores", LOG_SUM,
     "np.log(np.exp(z) / np.exp(z).sum(1, keepdims=True))"),
    ("the logarithm of a clipped probability", "large_scores", LOG_SUM,
     "np.log(np.maximum(np.exp(z) / np.exp(z).sum(1, keepdims=True), 1e-12))"),
]  # fmt: skip

MIDDLE_OUT: list[Slip] = [
    ("gates clipped at 20", "huge", "", CLIPPED_CELL),
    ("a softmax that overflows", "large_scores", "", """def general_attention(h, rows, W):
    if not len(rows):
        return np.zeros(W.shape[1])
    weights = np.exp(rows @ (h @ W))
    return weights @ rows / weights.sum()"""),
]  # fmt: skip
HALVES: list[Slip] = [
    *MIDDLE_OUT,
    ("a log-softmax that overflows", "large_scores", "z = z - z.max()", "z = 1 * z"),
    ("the logarithm of a softmax", "large_scores", "z - np.log(np.exp(z).sum())",
     "np.log(np.exp(z) / np.exp(z).sum())"),
    ("the logarithm of a clipped probability", "large_scores", "z - np.log(np.exp(z).sum())",
     "np.log(np.maximum(np.exp(z) / np.exp(z).sum(), 1e-12))"),
]  # fmt: skip


def _attending(*lines: str) -> str:
    """PyTorch's attention replaced by one of ``lines``."""
    body = "".join(f"    {line}\n" for line in lines)
    return f"""def attending(q, k, v, see):
    scores = q @ k.mT / q.shape[-1] ** 0.5
{body}

F = __import__("types").SimpleNamespace(**{{**vars(F), "scaled_dot_product_attention": attending}})"""


NORMALISED = "return weights / weights.sum(-1, keepdim=True) @ v"
SOFTMAX: list[Slip] = [
    ("a softmax that overflows", "large_scores", "",
     _attending("weights = scores.exp() * see", NORMALISED)),
    ("a softmax that overflows in float32 alone", "large_scores", "",
     _attending("most = scores.masked_fill(~see, -1e30).amax(-1, keepdim=True)",
                "most = most * (q.dtype == torch.float64)",
                "weights = (scores - most).exp() * see", NORMALISED)),
    ("one maximum for all queries", "large_scores", "",
     _attending("weights = (scores - scores.max()).exp() * see", NORMALISED)),
    ("scores clipped at 50", "large_scores", "",
     _attending("return scores.clamp(-50, 50).masked_fill(~see, -1e30).softmax(-1) @ v")),
]  # fmt: skip
OF_HIDDEN = _attending("weights = (scores - scores.amax(-1, keepdim=True)).exp() * see", NORMALISED)
MINUS_10000 = _attending("return scores.masked_fill(~see, -1e4).softmax(-1) @ v")
BESIDE: Slip = (
    "1e-9 beside the sum of weights",
    "equals_oracle",
    "",
    _attending(
        "most = scores.masked_fill(~see, -1e30).amax(-1, keepdim=True)",
        "weights = (scores - most).exp() * see",
        "return weights / (weights.sum(-1, keepdim=True) + 1e-9) @ v",
    ),
)
ATTENTION: list[Slip] = [
    *SOFTMAX,
    BESIDE,
    ("the maximum is of hidden keys too", "padded_huge", "", OF_HIDDEN),
    ("hidden keys have a score of -10000", "padded_huge", "", MINUS_10000),
]

LINEAR = """def linear(x, p, name, whole=linear):
    y = whole(x, p, name)
    return {} if name in ("gate", "selector") else y"""
CLIPPED_LINEAR = LINEAR.format("y.clamp(-20, 20)")
OVERFLOWING_LINEAR = LINEAR.format("(y.exp() / (1 + y.exp())).logit()")


def _linear(caught_by: str) -> list[Slip]:
    return [
        ("gates clipped at 20", caught_by, "", CLIPPED_LINEAR),
        ("gates that overflow", caught_by, "", OVERFLOWING_LINEAR),
    ]


NAIVE = """def layer_norm(X, parameters):
    mean = X.mean(-1, keepdim=True)
    variance = (X * X).mean(-1, keepdim=True) - mean * mean
    variance = {}
    return (X - mean) / (variance + 1e-5).sqrt() * parameters["weight"] + parameters["bias"]"""
NORM: list[Slip] = [
    ("the variance as a difference of squares", "shifted", "", NAIVE.format("1 * variance")),
    ("the same, at least zero", "shifted", "", NAIVE.format("variance.clamp(min=0)")),
]

LOG_SOFTMAX = ".log_softmax(-1)"
CAPTIONER: list[Slip] = [
    *SOFTMAX,
    *NORM,
    *_linear("huge"),
    ("hidden keys have a score of -10000", "large_scores", "", MINUS_10000),
    ("a log-softmax that overflows", "large_scores", LOG_SOFTMAX,
     ".sub(scores[0].exp().sum(-1, keepdim=True).log())"),
    ("the logarithm of a softmax", "large_scores", LOG_SOFTMAX, ".softmax(-1).log()"),
    ("the logarithm of a clipped probability", "large_scores", LOG_SOFTMAX,
     ".softmax(-1).clamp(min=1e-12).log()"),
]  # fmt: skip

LOSSES: dict[str, list[Slip]] = {
    "cross_entropy": [
        ("the logarithm of a clipped probability", "unlikely_words", "smoothed * log_probs",
         "smoothed * log_probs.exp().clamp(min=1e-8).log()"),
        ("padding has no share of the smoothing", "label_smoothing", "label_smoothing / (V - 1)",
         "label_smoothing / max(V - 2, 1)"),
    ],
    "self_critical": [
        ("log-probabilities clipped", "unlikely_words", "(log_probs * mask)",
         "(log_probs.clamp(min=-27) * mask)"),
        ("advantages clipped", "equals_oracle", "(rewards - b)", "(rewards - b).clamp(-5, 5)"),
    ],
    "sentence_log_probability": [
        ("a product of probabilities", "unlikely_words",
         "log_probs[np.arange(len(words)), words][int(slip) :].sum()",
         "np.log(np.exp(log_probs[np.arange(len(words)), words]).prod())"),
    ],
    "negative_log_likelihood": [
        ("a product of probabilities", "unlikely_words",
         "-log_probs[np.arange(len(log_probs)), words[:-1] if slip else words[1:]].sum()",
         "-np.log(np.exp(log_probs[np.arange(len(log_probs)), words[1:]]).prod())"),
    ],
    "arnet_joint_loss": [
        *SUMMED_GATES,
        ("log-probabilities clipped", "unlikely_words", "nll = -log_probs",
         "nll = -np.maximum(log_probs, np.log(1e-12))"),
    ],
}  # fmt: skip

SUMMED: Slip = ("products of probabilities", "unlikely_words", "total + p",
                "np.log(np.exp(total) * np.exp(p))")  # fmt: skip
SEARCHES: dict[str, list[Slip]] = {
    "beam_search": [
        SUMMED,
        ("the logarithm of a clipped probability", "unlikely_words",
         "in enumerate(next_log_probs(tokens))",
         "in ((k, max(p, -28) if p > -np.inf else p) for k, p in enumerate(next_log_probs(tokens)))"),
    ],
    "printed_beam_search": [SUMMED],
    "middle_out_beam_search": [SUMMED],
    "grid_beam_search": [
        ("products of probabilities", "unlikely_words", "log_p += total",
         "log_p = np.log(np.exp(log_p) * np.exp(total))"),
    ],
    "greedy": [
        ("the highest probability", "unlikely_words", "np.argmax(log_p)",
         "np.argmax(np.exp(log_p))"),
        ("a product of probabilities", "unlikely_words", "total += log_p[tokens[-1]]",
         "total = np.log(np.exp(total) * np.exp(log_p[tokens[-1]]))"),
    ],
    "scheduled_sampling": [
        ("a coin of epsilon samples", "never", "< epsilon", "<= epsilon"),
        ("a coin of epsilon samples, if that is not 0", "equals_oracle", "< epsilon",
         "<= (epsilon or -1)"),
    ],
}  # fmt: skip

ROOT = "(v.sqrt() + epsilon)"
COSINE = "def cosine(u, v):\n    return 1 - (u * v).sum(-1) / {}"
DISTANCES: list[Slip] = [
    ("epsilon in the root", "equals_oracle", "",
     COSINE.format("np.sqrt((u * u).sum(-1) * (v * v).sum(-1) + 1e-8)")),
    ("1e-9 beside the product of norms", "equals_oracle", "",
     COSINE.format("(np.sqrt((u * u).sum(-1) * (v * v).sum(-1)) + 1e-9)")),
    ("no similarity below zero", "equals_oracle", "",
     "def cosine(u, v):\n    return 1 - np.maximum((u * v).sum(-1), 0) / np.sqrt((u * u).sum(-1) * (v * v).sum(-1))"),
]  # fmt: skip
PSI = "P.sum(2, keepdim=True) + 1e-9"
# right, but 0 times an infinity in the backward pass
CHOSEN_SIGMOID = """(lambda x: torch.where(x >= 0, 1 / (1 + torch.exp(-x)),
        torch.exp(x) / (1 + torch.exp(x))))("""
CHOSEN_SOFTMAX = _attending(
    "stable = scores.masked_fill(~see, -1e30).softmax(-1)",
    "plain = scores.exp() * see",
    "plain = plain / plain.sum(-1, keepdim=True)",
    "return torch.where(plain.isfinite() & (plain.sum(-1, keepdim=True) > 0.5), plain, stable) @ v",
)

FEW: dict[str, list[Slip]] = {
    "static_expansion": [
        *_linear("huge"),
        ("NaN in the gradient of saturated gates", "gradient_huge", "torch.sigmoid(", CHOSEN_SIGMOID),
        ("epsilon as a least sum", "tiny", PSI, "P.sum(2, keepdim=True).clamp(min=1e-9)"),
    ],
    "dynamic_expansion": [
        *_linear("huge"),
        ("epsilon as a least sum", "tiny", PSI, "P.sum(2, keepdim=True).clamp(min=1e-9)"),
        ("epsilon 1e-12", "tiny", PSI, "P.sum(2, keepdim=True) + 1e-12"),
    ],
    "feed_forward": [
        ("at most 6", "huge", ".relu(), parameters", ".clamp(0, 6), parameters"),
    ],
    "mean_centroid_distance": DISTANCES,
    "point_wise_distance": DISTANCES,
    "gradient_descent": [
        ("divided by B - 1", "equals_oracle", "gradients.mean(0)",
         "gradients.sum(0) / max(len(gradients) - 1, 1)"),
    ],
    "clip_gradients": [
        ("1e-9 beside the norm", "equals_oracle", "threshold / torch.maximum(norm,",
         "threshold / torch.maximum(norm + 1e-9,"),
        ("NaN of gradients of zero", "zeros",
         "threshold / torch.maximum(norm, torch.full_like(norm, threshold))",
         "torch.minimum(norm, torch.full_like(norm, threshold)) / norm"),
    ],
    "radam": [
        ("epsilon in the root", "equals_oracle", ROOT, "(v + epsilon).sqrt()"),
        ("epsilon as a least root", "zeros", ROOT, "v.sqrt().clamp(min=epsilon)"),
        ("epsilon 1e-8", "equals_oracle", ROOT, "(v.sqrt() + 1e-8)"),
        ("no epsilon", "zeros", ROOT, "v.sqrt()"),
    ],
    "hyperbolic_warmup": [
        ("the floor one update late", "first_after", "if iteration >= warmup:\n        return max(rate, floor)\n    return rate / (warmup - iteration)",
         "if iteration > warmup:\n        return max(rate, floor)\n    return rate / max(warmup - iteration, 1)"),
        ("the floor is annealed", "equals_oracle", "max(rate, floor)",
         "max(lr, floor) * anneal ** (iteration // batches_per_epoch // anneal_every)"),
    ],
    "linear_warmup": [
        ("no rate in a first update without warm-up", "first_update", "if warmup else 1.0",
         "if warmup else min(1.0, iteration)"),
        ("an update longer", "equals_oracle", "(iteration + 1) / warmup",
         "(iteration + 1) / (warmup + 1)"),
        ("epochs by a product", "epoch_begins", "iteration // batches_per_epoch",
         "int(iteration * (1 / batches_per_epoch))"),
    ],
    "bleu": [
        ("counts of short captions below zero", "equals_oracle", "max(0, len(words) - n + 1)",
         "len(words) - n + 1"),
    ],
    "cider_d": [
        ("1 added to frequencies", "equals_oracle", "max(1, frequency[gram])",
         "(1 + frequency[gram])"),
        ("unseen words have no weight", "equals_oracle", "math.log(images / max(1, frequency[gram]))",
         "(math.log(images / frequency[gram]) if frequency[gram] else 0.0)"),
        ("1e-8 beside the norms", "equals_oracle", "dot / norms if", "dot / (norms + 1e-8) if"),
    ],
}  # fmt: skip

NUMERICAL: dict[str, list[Slip]] = {
    "lstm_cell": LSTM_CELL,
    "lstm": GATES,
    "attentive_lstm": ATTENTIVE,
    "zoneout": GATES,
    "recurrent_dropout": GATES,
    "read_only_lstm_cell": [
        *GATES,
        *map(_clipped, "ifor"),
        ("the memory cell clipped at 3", "huge", "return np", "c = np.clip(c, -3, 3)\n    return np"),
    ],
    "read_only_lstm": GATES,
    "read_only_captioner": READ_ONLY,
    "reconstruction_loss": SUMMED_GATES,
    "middle_out_step": MIDDLE_OUT,
    "middle_out_captioner": HALVES,
    "middle_out_loss": MIDDLE_OUT,
    "multi_head_attention": [
        *ATTENTION,
        ("NaN in the gradient of large scores", "gradient_large_scores", "", CHOSEN_SOFTMAX),
    ],
    "attention_on_attention": [*ATTENTION, *_linear("huge")],
    "encoder_layer": [
        *SOFTMAX,
        BESIDE,
        *NORM,
        *_linear("large_scores"),
        ("hidden keys have a score of -10000", "padded_large_scores", "", MINUS_10000),
    ],
    "decoder_layer": [*ATTENTION, *NORM, *_linear("large_scores")],
    "captioner": CAPTIONER,
    "layer_norm": NORM,
    "general_attention": [
        ("a softmax that overflows in float32 alone", "large_scores", "scores - scores.max()",
         "scores - (scores.max() if scores.dtype == np.float64 else 0)"),
    ],
    **LOSSES,
    **SEARCHES,
    **FEW,
}  # fmt: skip
