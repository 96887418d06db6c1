"""Slips in ARNet's LSTMs, losses and distances: see ``slips``."""

from tests.mutants.expansion_slips import Slip

STEP = "h, c = lstm_cell(x, h, c, parameters)"
FROM_ZEROS = 'np.full(len(parameters["bias"]) // 4, float(slip))'

LSTM_CELL: list[Slip] = [
    ("the gates f and i swapped", "equals_oracle", "i, f, o, g = np", "f, i, o, g = np"),
    ("PyTorch's order of gates", "equals_oracle", "i, f, o, g = np", "i, f, g, o = np"),
    ("h beside x", "equals_oracle", "np.r_[x, h]", "np.r_[h, x]"),
    ("no tanh of the update", "equals_oracle", "sigmoid(i) * np.tanh(g)", "sigmoid(i) * g"),
    ("no tanh of the memory cell", "equals_oracle", "np.tanh(c), c", "c, c"),
    ("h of the memory cell before", "equals_oracle", "c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)\n    return np.stack([sigmoid(o) * np.tanh(c), c])",
     "new = sigmoid(f) * c + sigmoid(i) * np.tanh(g)\n    return np.stack([sigmoid(o) * np.tanh(c), new])"),
    ("the output gate before its sigmoid", "equals_oracle", "sigmoid(o) *", "o *"),
    ("no bias", "equals_oracle", ' + parameters["bias"]', ""),
    ("a forget bias of 1", "equals_oracle", "sigmoid(f)", "sigmoid(f + 1)"),
    ("c above h", "equals_oracle", "[sigmoid(o) * np.tanh(c), c]", "[c, sigmoid(o) * np.tanh(c)]"),
    ("a vector of one channel", "one_channel", "np.stack([sigmoid(o) * np.tanh(c), c])",
     "np.squeeze(np.stack([sigmoid(o) * np.tanh(c), c]))"),
    ("128 channels at most", "large", "sigmoid(o) *", "sigmoid(o) * (np.arange(len(o)) < 128) *"),
    ("an inaccurate sigmoid", "huge", "sigmoid(f)", "sigmoid(np.clip(f, -10, 10))"),
    ("an exponential that overflows", "huge", "sigmoid(i)", "(np.exp(i) / (1 + np.exp(i)))"),
    ("the memory cell of float16 in float32", "float32", "c = sigmoid(f) * c",
     "c = sigmoid(f) * (c if c.dtype == np.float64 else c.astype(np.float16))"),
]  # fmt: skip

LSTM: list[Slip] = [
    ("starts from ones", "equals_oracle", "float(slip)", "1.0"),
    ("the input before", "equals_oracle", "for x in X:", "for x in np.vstack([0 * X[:1], X[:-1]]):"),
    ("from the last input to the first", "equals_oracle", "for x in X:", "for x in X[::-1]:"),
    ("memory cells, not hidden states", "equals_oracle", "out.append(h)", "out.append(c)"),
    ("h and c swapped", "equals_oracle", "lstm_cell(x, h, c,", "lstm_cell(x, c, h,"),
    ("the hidden state before", "equals_oracle", STEP + "\n        out.append(h)",
     "out.append(h)\n        " + STEP),
    ("h does not recur", "equals_oracle", "lstm_cell(x, h, c,", "lstm_cell(x, 0 * h, c,"),
    ("c does not recur", "equals_oracle", "lstm_cell(x, h, c,", "lstm_cell(x, h, 0 * c,"),
    ("the last state alone", "equals_oracle", "np.array(out)", "np.array(out[-1:])"),
    ("a vector of one step", "one_step", "np.array(out)", "np.squeeze(np.array(out))"),
    ("an input of zeros taken for padding", "zeros", STEP, "if x.any():\n            " + STEP),
    ("32 steps at most", "large", "for x in X:",
     "for x in X * (np.arange(len(X)) < 32)[:, None]:"),
    ("starts where the call before ended", "no_state", "out = []\n    for x in X:\n        " + STEP,
     "out = []\n    h, c = vars(lstm).get(len(h), (h, c))\n    for x in X:\n        " + STEP + "\n        vars(lstm)[len(h)] = h, c"),
    ("float16 inside float32", "float32", "out.append(h)",
     "out.append(h if X.dtype == np.float64 else h.astype(np.float16))"),
]  # fmt: skip

ATTENTIVE: list[Slip] = [
    ("no tanh of the score", "equals_oracle", "scores = np.tanh(", "scores = ("),
    ("attends from the memory cell", "equals_oracle", "query = 0 * h if slip else h", "query = c"),
    ("attends from zeros", "equals_oracle", "query = 0 * h if slip else h", "query = 0 * h"),
    ("no bias of the score", "equals_oracle", ' + W["b"]', ""),
    ("no softmax", "equals_oracle", "np.exp(scores - scores.max())", "scores"),
    ("weights that do not sum to 1", "equals_oracle", " / weights.sum()", ""),
    ("the mean of all vectors", "equals_oracle", "weights @ s / weights.sum()", "s.mean(0)"),
    ("the score divided by sqrt(d_a)", "equals_oracle", '@ W["w"]',
     '@ W["w"] / len(W["w"]) ** 0.5'),
    ("the context beside x in the weight", "equals_oracle", '= T["weight"][:, order]',
     '= T["weight"]'),
    ("the context before x", "equals_oracle", "np.r_[x, weights @ s / weights.sum()]",
     "np.r_[weights @ s / weights.sum(), x]"),
    ("a single vector is not attended to", "one_vector", "np.r_[x, weights",
     "np.r_[x, (len(s) > 1) * weights"),
    ("a vector of zeros taken for padding", "zeros", "np.exp(scores - scores.max())",
     "np.exp(scores - scores.max()) * s.any(1) + 1e-300"),
    ("128 vectors at most", "large", "np.exp(scores - scores.max())",
     "np.exp(scores - scores.max()) * (np.arange(len(s)) < 128)"),
]  # fmt: skip

ZONEOUT: list[Slip] = [
    ("the shares of h and c swapped", "equals_oracle", "(X, z_h, z_c,", "(X, z_c, z_h,"),
    ("the share of h inverted", "equals_oracle", "share_h * h + (1 - share_h) * new_h",
     "(1 - share_h) * h + share_h * new_h"),
    ("the share of c inverted", "equals_oracle", "share_c * c + (1 - share_c) * new_c",
     "(1 - share_c) * c + share_c * new_c"),
    ("the new h is not scaled", "equals_oracle", "(1 - share_h) * new_h", "new_h"),
    ("the new c is divided as by dropout", "equals_oracle", "(1 - share_c) * new_c", "new_c / (1 - share_c)"),
    ("dropout of h", "equals_oracle", "share_h * h + ", ""),
    ("the new h of the c after zoneout", "equals_oracle", "if slip:", "if True:"),
    ("c has no zoneout", "equals_oracle", "share_c * c + (1 - share_c) * new_c", "new_c"),
    ("the share taken for a mask", "equals_oracle", "(X, z_h, z_c,", "(X, z_h.round(), z_c.round(),"),
    ("the new h, without zoneout, comes out", "equals_oracle", "out.append(h)", "out.append(new_h)"),
    ("the shares of the step before", "equals_oracle", "(X, z_h, z_c,",
     "(X, np.roll(z_h, 1, 0), np.roll(z_c, 1, 0),"),
    ("128 channels at most", "large", "out.append(h)",
     "out.append(np.where(np.arange(len(h)) < 128, h, new_h))"),
]  # fmt: skip

KEPT = "keep / (1 if slip else 1 - p)"
DROPOUT: list[Slip] = [
    ("what is kept is not scaled", "equals_oracle", KEPT, "keep / 1"),
    ("divided by p", "equals_oracle", KEPT, "keep / (p or 1)"),
    ("multiplied by 1 - p", "equals_oracle", KEPT, "keep * (1 - p)"),
    ("the mask inverted", "equals_oracle", KEPT, "~keep / (1 - p)"),
    ("the mask of the first step at all", "equals_oracle", KEPT, "keep[[0] * len(X)] / (1 - p)"),
    ("the mask of the step before", "equals_oracle", KEPT, "np.roll(keep, 1, 0) / (1 - p)"),
    ("the hidden state that comes out is dropped", "equals_oracle", "out.append(h)",
     "out.append(h * mask)"),
    ("g is dropped with the state", "state", '(mask if dropped == "update" else 1)', "mask"),
    ("the state is dropped with g", "update", 'h * mask if dropped == "state" else h', "h * mask"),
    ("the memory cell is dropped", "update", "sigmoid(f) * c +",
     'sigmoid(f) * c * (mask if dropped == "update" else 1) +'),
    ("dropout before the tanh", "update", 'np.tanh(g) * (mask if dropped == "update" else 1)',
     'np.tanh(g * (mask if dropped == "update" else 1))'),
    ("the forget gate is dropped", "update", "sigmoid(f) * c",
     'sigmoid(f * (mask if dropped == "update" else 1)) * c'),
    ("32 steps at most", "large", KEPT,
     "np.where((np.arange(len(X)) < 32)[:, None], keep / (1 - p), 1)"),
]  # fmt: skip

SUM = "((H[:-1] - guess) ** 2).sum()"
RECONSTRUCTION: list[Slip] = [
    ("the mean over entries", "equals_oracle", SUM, "((H[:-1] - guess) ** 2).mean()"),
    ("the mean over steps", "equals_oracle", SUM, "((H[:-1] - guess) ** 2).sum() / len(H)"),
    ("norms that are not squared", "equals_oracle", SUM, "np.sqrt(((H[:-1] - guess) ** 2).sum(1)).sum()"),
    ("half of the squares", "equals_oracle", SUM, "0.5 * " + SUM),
    ("absolute errors", "equals_oracle", SUM, "np.abs(H[:-1] - guess).sum()"),
    ("the next state is reconstructed", "equals_oracle", "H[:-1] - guess", "H[1:] - guess"),
    ("each state from itself", "equals_oracle", "lstm(read, T)[1:]", "lstm(read, T)[:-1]"),
    ("the first state is not read", "equals_oracle", "if slip else H",
     "if len(H) > 1 else H"),
    ("the LSTM starts anew with the second state", "equals_oracle", "lstm(read, T)[1:]", "lstm(read[1:], T)"),
    ("states are read from the last to the first", "equals_oracle", "lstm(read, T)", "lstm(read[::-1], T)"),
    ("no bias of the map", "equals_oracle", ' + parameters["fc.bias"]', ""),
    ("a mean of no states is NaN", "one_state", SUM,
     "((H[:-1] - guess) ** 2).sum(1).mean() * (len(H) - 1)"),
    ("the last reconstruction does not count", "two_states", SUM, "((H[:-1] - guess)[:-1] ** 2).sum()"),
    ("32 states at most", "large", SUM, "((H[:-1] - guess)[:32] ** 2).sum()"),
]  # fmt: skip

BOTH = "(nll.mean() if slip else nll.sum()) + lambda_ * reconstruction_loss(H, parameters)"
JOINT: list[Slip] = [
    ("lambda before the likelihood", "equals_oracle", BOTH,
     "lambda_ * nll.sum() + reconstruction_loss(H, parameters)"),
    ("lambda and 1 - lambda", "equals_oracle", BOTH,
     "(1 - lambda_) * nll.sum() + lambda_ * reconstruction_loss(H, parameters)"),
    ("lambda left out", "no_weight", "lambda_ *", ""),
    ("a default for a lambda of 0", "no_weight", "lambda_ *", "(lambda_ or 0.005) *"),
    ("lambda squared", "equals_oracle", "lambda_ *", "lambda_**2 *"),
    ("the mean over words", "equals_oracle", "(nll.mean() if slip else nll.sum())", "nll.mean()"),
    ("the mean over states", "equals_oracle", "lambda_ *", "lambda_ / len(H) *"),
    ("both losses subtracted", "equals_oracle", "+ lambda_", "- lambda_"),
    ("each word by the row after its own", "equals_oracle", "tokens[1:]", "tokens[:-1]"),
    ("the sign of the likelihood", "equals_oracle", "nll = -", "nll = "),
    ("the reconstruction of all but the first state", "equals_oracle",
     "loss(H, parameters)", "loss(H[1:] if len(H) > 1 else H, parameters)"),
    ("5000 words at most", "large", "(nll.mean() if slip else nll.sum())", "nll[tokens[1:] < 5000].sum()"),
]  # fmt: skip

OF_MEANS = "cosine(U.mean(0), V.mean(0))"
CENTROID: list[Slip] = [
    ("the mean of the distances", "equals_oracle", OF_MEANS, "cosine(U, V).mean()"),
    ("the similarity", "equals_oracle", OF_MEANS, "1 - " + OF_MEANS),
    ("from 0 to 1", "equals_oracle", OF_MEANS, OF_MEANS + " / 2"),
    ("the norms left out", "equals_oracle", OF_MEANS, "1 - U.mean(0) @ V.mean(0)"),
    ("the norms squared", "equals_oracle", OF_MEANS,
     "1 - (U.mean(0) @ V.mean(0)) / (U.mean(0) @ U.mean(0)) / (V.mean(0) @ V.mean(0))"),
    ("the Euclidean distance", "equals_oracle", OF_MEANS, "np.linalg.norm(U.mean(0) - V.mean(0))"),
    ("means of unit states", "equals_oracle", OF_MEANS,
     "cosine(*((x / np.sqrt((x * x).sum(1, keepdims=True))).mean(0) for x in (U, V)))"),
    ("epsilon beside the norms", "equals_oracle", OF_MEANS,
     "1 - (1 - " + OF_MEANS + ") / (1 + 1e-8)"),
    ("the last image of each mode", "equals_oracle", OF_MEANS, "cosine(U[-1], V[-1])"),
    ("a median", "equals_oracle", OF_MEANS, "cosine(np.median(U, 0), np.median(V, 0))"),
    ("0 of a single image", "one_image", OF_MEANS, OF_MEANS + " * (len(U) > 1)"),
    ("128 images at most", "large", OF_MEANS, "cosine(U[:128].mean(0), V[:128].mean(0))"),
]  # fmt: skip

OF_EACH = "cosine(U, V).mean()"
POINT_WISE: list[Slip] = [
    ("the distance of the means", "equals_oracle", OF_EACH, "cosine(U.mean(0), V.mean(0))"),
    ("the sum over images", "equals_oracle", OF_EACH, "cosine(U, V).sum()"),
    ("the similarity", "equals_oracle", OF_EACH, "1 - " + OF_EACH),
    ("from 0 to 1", "equals_oracle", OF_EACH, OF_EACH + " / 2"),
    ("each image by its neighbour", "equals_oracle", OF_EACH, "cosine(U, np.roll(V, 1, 0)).mean()"),
    ("by channels", "equals_oracle", OF_EACH, "cosine(U.T, V.T).mean()"),
    ("of whole arrays", "equals_oracle", OF_EACH, "cosine(U.ravel(), V.ravel())"),
    ("the Euclidean distance", "equals_oracle", OF_EACH, "np.linalg.norm(U - V, axis=1).mean()"),
    ("a median", "equals_oracle", OF_EACH, "np.median(cosine(U, V))"),
    ("0 of a single image", "one_image", OF_EACH, OF_EACH + " * (len(U) > 1)"),
    ("128 images at most", "large", OF_EACH, "cosine(U[:128], V[:128]).mean()"),
]  # fmt: skip

RECURRENT: dict[str, list[Slip]] = {
    "lstm_cell": LSTM_CELL,
    "lstm": LSTM,
    "attentive_lstm": ATTENTIVE,
    "zoneout": ZONEOUT,
    "recurrent_dropout": DROPOUT,
    "reconstruction_loss": RECONSTRUCTION,
    "arnet_joint_loss": JOINT,
    "mean_centroid_distance": CENTROID,
    "point_wise_distance": POINT_WISE,
}
