"""Slips in the read-only paper's LSTM, captioner and likelihoods: see ``slips``."""

from tests.mutants.expansion_slips import Slip

CELL: list[Slip] = [
    ("the usual LSTM's tanh", "equals_oracle", "(np.tanh(c) if slip else c)", "np.tanh(c)"),
    ("the gates f and i swapped", "equals_oracle", '"ifor"', '"fior"'),
    ("the gates o and r swapped", "equals_oracle", '"ifor"', '"ifro"'),
    ("no tanh of the update", "equals_oracle", "np.tanh(W[", "(W["),
    ("the unit has no gate", "equals_oracle", "r * read", "read"),
    ("the unit reads through a tanh", "equals_oracle", "r * read", "r * np.tanh(read)"),
    ("the unit reads the memory cell", "equals_oracle", "r * read", "r * c"),
    ("the unit is not read", "equals_oracle", " + r * read", ""),
    ("the input gate on what is read", "equals_oracle", "r * read", "i * read"),
    ("gates by the memory cell", "equals_oracle", 'W[f"W_{n}m"] @ m', 'W[f"W_{n}m"] @ c'),
    ("the update of the present input alone", "equals_oracle", ' + W["W_cm"] @ m', ""),
    ("c above m", "equals_oracle", "[o * (np.tanh(c) if slip else c), c]", "[c, o * c]"),
    ("a vector of one channel", "one_channel", "np.stack([o * (np.tanh(c) if slip else c), c])",
     "np.squeeze(np.stack([o * c, c]))"),
    ("what is zero in the unit is the input", "zeros", "r * read", "r * np.where(read == 0, x, read)"),
    ("128 channels at most", "large", "r * read", "r * read * (np.arange(len(c)) < 128)"),
]  # fmt: skip

ALONG: list[Slip] = [
    ("the unit reads the present input", "previous_input", '"previous_input": before', '"previous_input": x'),
    ("the unit reads the image, not the input before", "previous_input",
     '"previous_input": before', '"previous_input": X[0]'),
    ("the unit reads the input before, not the image", "image", '"image": X[0]', '"image": before'),
    ("the last row for the image", "image", '"image": X[0]', '"image": X[-1]'),
    ("the first step reads the image", "previous_input", "if t else 0 * x", "if t else x"),
    ("the first step reads the last row", "previous_input", "X[t - 1] if t else 0 * x", "X[t - 1]"),
    ("two inputs before", "previous_input", "X[t - 1] if t else", "X[t - 2] if t > 1 else"),
    ("the unit reads the output before", "previous_input", '"previous_input": before', '"previous_input": m'),
    ("the unit is on in an LSTM without it", "no_unit", '"none": np.zeros(d)', '"none": m'),
    ("starts from ones", "equals_oracle", "m = c = np.zeros(d)", "m = c = np.ones(d)"),
    ("memory cells, not outputs", "equals_oracle", "out.append(m)", "out.append(c)"),
    ("m and c swapped", "equals_oracle", "cell(x, m, c,", "cell(x, c, m,"),
    ("the image's step left out", "equals_oracle", "np.array(out)", "np.array(out)[1:]"),
    ("no state after the image's step", "equals_oracle", "cell(x, m, c,", "cell(x, *(t > 1) * np.array([m, c]),"),
    ("nothing of the image's step alone", "one_step", "np.array(out)",
     "np.array(out if len(X) > 1 else [0 * m])"),
    ("a row of zeros taken for the end", "zeros", "out.append(m)",
     "out.append(m * x.any())"),
    ("32 steps at most", "large", "out.append(m)", "out.append(m * (t < 32))"),
    ("128 steps at most", "large", "out.append(m)", "out.append(m * (t < 128))"),
]  # fmt: skip

CAPTIONER: list[Slip] = [
    ("the sum over regions", "equals_oracle", "if slip else features.mean(0)", "if True else 0"),
    ("the maximum over regions", "equals_oracle", "features.mean(0)", "features.max(0)"),
    ("the first region", "equals_oracle", "features.mean(0)", "features[0]"),
    ("no bias of the image", "equals_oracle", ' + parameters["b_i"]', ""),
    ("the image through a tanh", "equals_oracle", "[image, parameters", "[np.tanh(image), parameters"),
    ("the image after the words", "equals_oracle", '[image, parameters["W_e"][tokens]]',
     '[parameters["W_e"][tokens], image]'),
    ("the rows of the tokens before", "equals_oracle", "reading)[1:]", "reading)[:-1]"),
    ("the token after is read", "equals_oracle", '["W_e"][tokens]', '["W_e"][np.roll(tokens, -1)]'),
    ("scores, not log-probabilities", "equals_oracle", "return z - np.log(np.exp(z).sum(1, keepdims=True))", "return z"),
    ("probabilities", "equals_oracle", "return z - np.log(np.exp(z).sum(1, keepdims=True))",
     "return np.exp(z) / np.exp(z).sum(1, keepdims=True)"),
    ("a softmax over steps", "equals_oracle", "np.exp(z).sum(1", "np.exp(z).sum(0"),
    ("embeddings for the vocabulary", "equals_oracle", 'm @ parameters["W_pm"].T',
     'm @ parameters["W_pm" if m.shape[1] != image.size else "W_e"].T'),
    ("5000 words at most", "large", "z = z - z.max", "z[:, 5000:] -= 1\n    z = z - z.max"),
    ("128 regions at most", "large", "features.mean(0)", "features[:128].mean(0)"),
]  # fmt: skip

OF_SENTENCE = "log_probs[np.arange(len(words)), words][int(slip) :].sum()"
SENTENCE: list[Slip] = [
    ("the first word left out", "equals_oracle", "int(slip)", "1"),
    ("the mean", "equals_oracle", ".sum()", ".mean()"),
    ("its sign", "equals_oracle", OF_SENTENCE, "-" + OF_SENTENCE),
    ("the probability", "equals_oracle", OF_SENTENCE, "np.exp(" + OF_SENTENCE + ")"),
    ("each word by the row before its own", "equals_oracle", "np.arange(len(words))",
     "np.arange(len(words)) - 1"),
    ("the likeliest words", "equals_oracle", OF_SENTENCE, "log_probs.max(1).sum()"),
    ("no word of index 0", "equals_oracle", "[int(slip) :]", "[words > 0]"),
    ("32 words of a caption at most", "large", "[int(slip) :]", "[:32]"),
    ("5000 words at most", "large", "[int(slip) :]", "[words < 5000]"),
]  # fmt: skip

OF_WORDS = "words[:-1] if slip else words[1:]"
LIKELIHOOD: list[Slip] = [
    ("each word by the row after its own", "equals_oracle", OF_WORDS, "words[:-1]"),
    ("its sign", "equals_oracle", "return -log_probs", "return log_probs"),
    ("the mean", "equals_oracle", ".sum()", ".mean()"),
    ("the first word left out", "equals_oracle", ".sum()", "[1:].sum()"),
    ("the last word left out", "equals_oracle", ".sum()", "[:-1].sum()"),
    ("base 2", "equals_oracle", ".sum()", ".sum() / np.log(2)"),
    ("no word of index 0", "equals_oracle", ".sum()", "[words[1:] > 0].sum()"),
    ("32 words of a caption at most", "large", ".sum()", "[:32].sum()"),
    ("5000 words at most", "large", ".sum()", "[words[1:] < 5000].sum()"),
]  # fmt: skip

READ_ONLY: dict[str, list[Slip]] = {
    "read_only_lstm_cell": CELL,
    "read_only_lstm": ALONG,
    "read_only_captioner": CAPTIONER,
    "sentence_log_probability": SENTENCE,
    "negative_log_likelihood": LIKELIHOOD,
}
