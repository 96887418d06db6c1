"""Right candidates of the recurrent papers in NumPy, and with ``slip`` an easy mistake in each."""

import numpy as np


def sigmoid(x):
    return 0.5 * (1 + np.tanh(x / 2))


def lstm_cell(x, h, c, parameters, slip=False):
    """Slip: PyTorch's order of gates."""
    i, f, o, g = np.split(parameters["weight"] @ np.r_[x, h] + parameters["bias"], 4)
    if slip:
        o, g = g, o
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return np.stack([sigmoid(o) * np.tanh(c), c])


def lstm(X, parameters, slip=False):
    """Slip: starts from ones."""
    h = c = np.full(len(parameters["bias"]) // 4, float(slip))
    out = []
    for x in X:
        h, c = lstm_cell(x, h, c, parameters)
        out.append(h)
    return np.array(out)


def attentive_lstm(X, s, parameters, slip=False):
    """Slip: attends from zeros at every step."""
    T = {"weight": parameters["lstm.weight"], "bias": parameters["lstm.bias"]}
    W = {name[6:]: value for name, value in parameters.items() if name.startswith("score.")}
    d, d_x = len(T["bias"]) // 4, X.shape[1]
    # the step concatenates x and h: the context goes beside x
    order = np.r_[:d_x, d_x + d : d_x + d + s.shape[1], d_x : d_x + d]
    T["weight"] = T["weight"][:, order]
    h = c = np.zeros(d)
    out = []
    for x in X:
        query = 0 * h if slip else h
        scores = np.tanh(s @ W["W_s"].T + W["W_h"] @ query + W["b"]) @ W["w"]
        weights = np.exp(scores - scores.max())
        h, c = lstm_cell(np.r_[x, weights @ s / weights.sum()], h, c, T)
        out.append(h)
    return np.array(out)


def zoneout(X, parameters, z_h, z_c, slip=False):
    """Slip: the new hidden state is of the memory cell after zoneout."""
    h = c = np.zeros(len(parameters["bias"]) // 4)
    out = []
    for x, share_h, share_c in zip(X, z_h, z_c, strict=True):
        new_h, new_c = lstm_cell(x, h, c, parameters)
        mixed = share_c * c + (1 - share_c) * new_c
        if slip:
            new_h = new_h / np.tanh(new_c) * np.tanh(mixed)
        h, c = share_h * h + (1 - share_h) * new_h, mixed
        out.append(h)
    return np.array(out)


def recurrent_dropout(X, parameters, keep, p, dropped, slip=False):
    """Slip: what is kept is not scaled."""
    d = len(parameters["bias"]) // 4
    h = c = np.zeros(d)
    out = []
    for x, mask in zip(X, keep / (1 if slip else 1 - p), strict=True):
        read = h * mask if dropped == "state" else h
        i, f, o, g = np.split(parameters["weight"] @ np.r_[x, read] + parameters["bias"], 4)
        g = np.tanh(g) * (mask if dropped == "update" else 1)
        c = sigmoid(f) * c + sigmoid(i) * g
        h = sigmoid(o) * np.tanh(c)
        out.append(h)
    return np.array(out)


def read_only_lstm_cell(x, m, c, read, parameters, slip=False):
    """Slip: the usual LSTM's tanh of the memory cell."""
    W = parameters
    i, f, o, r = (sigmoid(W[f"W_{n}x"] @ x + W[f"W_{n}m"] @ m) for n in "ifor")
    c = f * c + r * read + i * np.tanh(W["W_cx"] @ x + W["W_cm"] @ m)
    return np.stack([o * (np.tanh(c) if slip else c), c])


def read_only_lstm(X, parameters, reading, slip=False):
    """Slip: the unit reads the present input."""
    W = dict(parameters)
    d, d_x = W["W_ix"].shape
    if reading == "none":
        W |= {"W_rx": np.zeros((d, d_x)), "W_rm": np.zeros((d, d))}
    m = c = np.zeros(d)
    out = []
    for t, x in enumerate(X):
        before = X[t - 1] if t else 0 * x
        read = {"none": np.zeros(d), "image": X[0], "previous_input": before}[reading]
        m, c = read_only_lstm_cell(x, m, c, x if slip and reading != "none" else read, W)
        out.append(m)
    return np.array(out)


def read_only_captioner(features, tokens, parameters, reading, slip=False):
    """Slip: the regions' sum, not their mean."""
    pooled = features.sum(0) if slip else features.mean(0)
    image = pooled @ parameters["W_i"] + parameters["b_i"]
    m = read_only_lstm(np.vstack([image, parameters["W_e"][tokens]]), parameters, reading)[1:]
    z = m @ parameters["W_pm"].T
    z = z - z.max(1, keepdims=True)
    return z - np.log(np.exp(z).sum(1, keepdims=True))


def reconstruction_loss(H, parameters, slip=False):
    """Slip: the loop does not read the first state."""
    T = {"weight": parameters["lstm.weight"], "bias": parameters["lstm.bias"]}
    read = np.vstack([0 * H[:1], H[1:]]) if slip else H
    guess = lstm(read, T)[1:] @ parameters["fc.weight"].T + parameters["fc.bias"]
    return ((H[:-1] - guess) ** 2).sum()


def arnet_joint_loss(log_probs, tokens, H, parameters, lambda_, slip=False):
    """Slip: the mean over words."""
    nll = -log_probs[np.arange(len(H)), tokens[1:]]
    return (nll.mean() if slip else nll.sum()) + lambda_ * reconstruction_loss(H, parameters)


def cosine(u, v):
    return 1 - (u * v).sum(-1) / np.sqrt((u * u).sum(-1) * (v * v).sum(-1))


def mean_centroid_distance(U, V, slip=False):
    """Slip: the other measure."""
    return point_wise_distance(U, V) if slip else cosine(U.mean(0), V.mean(0))


def point_wise_distance(U, V, slip=False):
    """Slip: a sum over images."""
    return cosine(U, V).sum() if slip else cosine(U, V).mean()
