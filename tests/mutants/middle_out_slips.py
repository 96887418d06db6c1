"""Slips in Middle-Out's attention, decoders and de-noising: see ``slips``."""

from tests.mutants.expansion_slips import Slip

SOFTMAX = "np.exp(scores - scores.max())"
SCALE = " / (np.sqrt(len(h) + 1) if slip else 1)"
ATTENTION: list[Slip] = [
    ("scores divided by sqrt(d)", "equals_oracle", SCALE, " / np.sqrt(len(h))"),
    ("a tanh of the scores", "equals_oracle", "rows @ (h @ W)", "np.tanh(rows @ (h @ W))"),
    ("no softmax", "equals_oracle", SOFTMAX, "scores"),
    ("weights that do not sum to 1", "equals_oracle", " / weights.sum()", ""),
    ("the mean of all rows", "equals_oracle", "weights @ rows / weights.sum()", "rows.mean(0)"),
    ("the row of the highest score", "equals_oracle", "weights @ rows / weights.sum()",
     "rows[scores.argmax()]"),
    ("the sign of the scores", "equals_oracle", "rows @ (h @ W)", "-rows @ (h @ W)"),
    ("rows weighted by the sum of the others'", "equals_oracle", "weights @ rows / weights.sum()",
     "(weights.sum() - weights) @ rows / weights.sum()"),
    ("a single row is not attended to", "one_row", "if not len(rows):", "if len(rows) < 2:"),
    ("a row of zeros taken for padding", "zeros", SOFTMAX, SOFTMAX + " * rows.any(1) + 1e-300"),
    ("128 rows at most", "large", SOFTMAX, SOFTMAX + " * (np.arange(len(rows)) < 128)"),
    ("overflows without the largest score", "huge", "scores - scores.max()", "scores"),
]  # fmt: skip

IN_ORDER = "np.concatenate(inputs[::-1] if slip else inputs)"
MEMORY = 'inputs.append(general_attention(h, memory, parameters["W_a"]))'
STEP: list[Slip] = [
    ("the context before the word", "equals_oracle", IN_ORDER, "np.concatenate(inputs[::-1])"),
    ("the context before the attended words", "dual", MEMORY, MEMORY.replace("append(", "insert(1, ")),
    ("attends to the memory from c", "equals_oracle", "(h, memory,", "(c, memory,"),
    ("attends to the words from c", "output", "(h, outputs,", "(c, outputs,"),
    ("attends to the states from c", "hidden", "(h, states,", "(c, states,"),
    ("the middle word left out", "output", "(h, outputs,", "(h, outputs[1:],"),
    ("the newest word left out", "output", "(h, outputs,", "(h, outputs[:-1],"),
    ("the newest state left out", "hidden", "(h, states,", "(h, states[:-1],"),
    ("the state itself among the states", "hidden", "(h, states,", "(h, np.vstack([states, h]),"),
    ("the state itself before the first", "first_step",
     'general_attention(h, states, parameters["W_h"])',
     'general_attention(h, states if len(states) else h[None], parameters["W_h"])'),
    ("h and c swapped", "equals_oracle", "lstm_cell(x, h, c,", "lstm_cell(x, c, h,"),
    ("the word twice, not what is attended to", "dual",
     'general_attention(h, outputs, parameters["W_d"])',
     'general_attention(h, outputs, parameters["W_d"]) if self_attention == "output" else e'),
    ("scores divided by sqrt(d)", "equals_oracle", "(h, memory,", "(h / np.sqrt(len(h)), memory,"),
    ("no memory", "none", MEMORY, MEMORY.replace("memory,", "0 * memory,")),
    ("32 words at most", "large", "(h, outputs,", "(h, outputs[:32],"),
    ("32 states at most", "large", "(h, states,", "(h, states[:32],"),
]  # fmt: skip

LOG_SOFTMAX = "z - np.log(np.exp(z).sum())"
ORDER = 'log_p["left"] + log_p["right"]'
CAPTIONER: list[Slip] = [
    ("a decoder attends to the words of its own half", "output", "not slip or", ""),
    ("a decoder attends to the states of its own half", "hidden", "not slip or", ""),
    ("right first", "dual", 'in ("left", "right"):\n            if', 'in ("right", "left"):\n            if'),
    ("the left half from its end", "equals_oracle", '"left": left,', '"left": left[::-1],'),
    ("the right half from its end", "equals_oracle", '"right": right}', '"right": right[::-1]}'),
    ("the left half's rows from left to right", "equals_oracle", ORDER, 'log_p["left"][::-1] + log_p["right"]'),
    ("the right half's rows first", "equals_oracle", ORDER, 'log_p["right"] + log_p["left"]'),
    ("the word before is read", "equals_oracle", "last[side] = E[words[side][k]]",
     "last[side] = E[words[side][max(k - 1, 0)]]"),
    ("the left half's word is read by both", "equals_oracle", "*state[side], last[side],",
     '*state[side], last["left"],'),
    ("both halves go on from one state", "equals_oracle", "*state[side], last", '*state["left"], last'),
    ("one decoder for both halves", "equals_oracle", "name[len(side) + 1 :]: a for name, a in parameters.items() if side in name",
     'name.partition(".")[2]: a for name, a in parameters.items() if "right" in name'),
    ("the middle word is not attended to", "output", '[("middle", E[middle])], []', "[], []"),
    ("starts from zeros", "equals_oracle", '"right": (h, c)}', '"right": (0 * h, 0 * c)}'),
    ("the right half starts from the memory cell", "equals_oracle", '"right": (h, c)}', '"right": (c, c)}'),
    ("ends with the shorter half", "longer_left", "max(len(left), len(right))", "min(len(left), len(right))"),
    ("ends when the left half has ended", "left_to_right", "continue", "break"),
    ("scores, not log-probabilities", "equals_oracle", LOG_SOFTMAX, "z"),
    ("no bias of the vocabulary", "equals_oracle", ' + own["vocabulary.bias"]', ""),
    ("memory cells are attended to", "hidden", "(side, state[side][0])", "(side, state[side][1])"),
    ("the word before is attended to", "output", "outputs.append((side, last[side]))",
     "outputs.append((side, E[words[side][max(k - 1, 0)]]))"),
    ("attends to 32 words at most", "large", "in log if", "in log[:32] if"),
    ("16 words of a half at most", "large", LOG_SOFTMAX, "(" + LOG_SOFTMAX + ") * (k < 16)"),
]  # fmt: skip

PICKED = "-picked[len(left) if slip else 0 :].sum()"
BOTH = "np.concatenate([left, right])"
LOSS: list[Slip] = [
    ("the right half alone", "equals_oracle", PICKED, "-picked[len(left) :].sum()"),
    ("the left half alone", "equals_oracle", PICKED, "-picked[: len(left)].sum()"),
    ("its sign", "equals_oracle", PICKED, "picked.sum()"),
    ("the mean over words", "equals_oracle", PICKED, "-picked.sum() / max(len(picked), 1)"),
    ("the mean of each half", "equals_oracle", PICKED,
     "-sum(half.sum() / max(len(half), 1) for half in np.split(picked, [len(left)]))"),
    ("the words of the halves swapped", "equals_oracle", BOTH, "np.concatenate([right, left])"),
    ("the left half from its end", "equals_oracle", BOTH, "np.concatenate([left[::-1], right])"),
    ("the right half from its end", "equals_oracle", BOTH, "np.concatenate([left, right[::-1]])"),
    ("the word before each", "equals_oracle", BOTH,
     "np.concatenate([[middle], left[:-1], [middle], right[:-1]])[: len(log_p)].astype(int)"),
    ("the last word left out", "equals_oracle", PICKED, "-picked[:-1].sum()"),
    ("16 words of the left half at most", "large", PICKED,
     "-picked[:16].sum() - picked[max(16, len(left)) :].sum()"),
]  # fmt: skip

SIGMA = "(mu if slip else mu**2)"
SEQUENCE: list[Slip] = [
    ("sigma is mu", "equals_oracle", SIGMA, "mu"),
    ("sigma is not squared in sign", "equals_oracle", SIGMA, "(mu * abs(mu))"),
    ("one number short", "equals_oracle", "np.arange(-N, N + 1)", "np.arange(-N, N)"),
    ("the left half rises above mu", "equals_oracle", "np.abs(np.arange(-N, N + 1))",
     "np.arange(-N, N + 1)"),
    ("divided by N + 1", "equals_oracle", "/ N", "/ (N + 1)"),
    ("divided by the length", "equals_oracle", "/ N", "/ (2 * N + 1)"),
    ("rises to the ends", "equals_oracle", "mu - n", "mu + n"),
    ("mu at the ends", "equals_oracle", "mu - n", "mu - (N - n)"),
    ("ends at the variance", "equals_oracle", SIGMA, "(mu - mu**2)"),
    ("128 numbers at most", "large", "/ N", "/ N * (np.arange(2 * N + 1) < 128)"),
    ("distances to 128", "large", "mu - n", "mu - np.minimum(n, 128)"),
]  # fmt: skip

SQUARES = "((y_hat - y) ** 2).sum() / (1 if slip else len(y))"
MSE: list[Slip] = [
    ("the sum", "equals_oracle", "(1 if slip else len(y))", "1"),
    ("half of the squares", "equals_oracle", SQUARES, SQUARES + " / 2"),
    ("divided by n - 1", "equals_oracle", "len(y))", "len(y) - 1)"),
    ("its root", "equals_oracle", SQUARES, "np.sqrt(((y_hat - y) ** 2).mean())"),
    ("absolute errors", "equals_oracle", "((y_hat - y) ** 2)", "np.abs(y_hat - y)"),
    ("the squared mean error", "equals_oracle", SQUARES, "(y_hat - y).mean() ** 2"),
    ("the variance of the errors", "equals_oracle", SQUARES, "(y_hat - y).var()"),
    ("the next number's error", "equals_oracle", "y_hat - y)", "np.roll(y_hat, 1) - y)"),
    ("the middle number does not count", "equals_oracle", SQUARES,
     "np.delete((y_hat - y) ** 2, len(y) // 2).mean()"),
    ("128 numbers at most", "large", SQUARES, "((y_hat - y)[:128] ** 2).mean()"),
]  # fmt: skip

FIRST = "y_hat[:N] if slip else y_hat[:N][::-1]"
DIFFERENCES = "((first - y_hat[N + 1 :]) ** 2).mean()"
SYMMETRIC: list[Slip] = [
    ("not mirrored", "equals_oracle", FIRST, "y_hat[:N]"),
    ("the sum", "equals_oracle", DIFFERENCES, "((first - y_hat[N + 1 :]) ** 2).sum()"),
    ("over all numbers", "equals_oracle", DIFFERENCES, "((y_hat - y_hat[::-1]) ** 2).mean()"),
    ("divided by the length", "equals_oracle", DIFFERENCES,
     "((first - y_hat[N + 1 :]) ** 2).sum() / len(y_hat)"),
    ("the middle number counts", "equals_oracle", DIFFERENCES,
     "((first - y_hat[N + 1 :]) ** 2).sum() / (N + 1)"),
    ("the second half begins in the middle", "equals_oracle", "y_hat[N + 1 :]", "y_hat[N:-1]"),
    ("its root", "equals_oracle", DIFFERENCES, "np.sqrt(" + DIFFERENCES + ")"),
    ("absolute differences", "equals_oracle", DIFFERENCES, "np.abs(first - y_hat[N + 1 :]).mean()"),
    ("sums, not differences", "equals_oracle", "first - y_hat", "first + y_hat"),
    ("64 pairs at most", "large", DIFFERENCES, "((first - y_hat[N + 1 :])[:64] ** 2).mean()"),
    ("512 pairs at most", "large", DIFFERENCES, "((first - y_hat[N + 1 :])[:512] ** 2).mean()"),
]  # fmt: skip

MIDDLE_OUT: dict[str, list[Slip]] = {
    "general_attention": ATTENTION,
    "middle_out_step": STEP,
    "middle_out_captioner": CAPTIONER,
    "middle_out_loss": LOSS,
    "symmetric_sequence": SEQUENCE,
    "mse": MSE,
    "symmetric_mse": SYMMETRIC,
}
