"""Right candidates of Middle-Out in NumPy, and with ``slip`` an easy mistake in each."""

import numpy as np

from tests.candidates.recurrent import lstm_cell


def general_attention(h, rows, W, slip=False):
    """Slip: scores scaled as in a Transformer."""
    if not len(rows):
        return np.zeros(W.shape[1])
    scores = rows @ (h @ W) / (np.sqrt(len(h) + 1) if slip else 1)
    weights = np.exp(scores - scores.max())
    return weights @ rows / weights.sum()


def middle_out_step(h, c, e, memory, outputs, states, parameters, self_attention, slip=False):
    """Slip: the context comes before the word."""
    inputs = [] if self_attention == "output" else [e]
    if self_attention in ("output", "dual"):
        inputs.append(general_attention(h, outputs, parameters["W_d"]))
    inputs.append(general_attention(h, memory, parameters["W_a"]))
    if self_attention in ("hidden", "dual"):
        inputs.append(general_attention(h, states, parameters["W_h"]))
    x = np.concatenate(inputs[::-1] if slip else inputs)
    return lstm_cell(x, h, c, {name: parameters[f"lstm.{name}"] for name in ("weight", "bias")})


def middle_out_captioner(left, middle, right, memory, h, c, parameters, self_attention, slip=False):
    """Slip: a decoder sees only its own half."""
    E = parameters["embedding.weight"]
    state, last = {"left": (h, c), "right": (h, c)}, {"left": E[middle], "right": E[middle]}
    words, log_p = {"left": left, "right": right}, {"left": [], "right": []}
    outputs, states = [("middle", E[middle])], []
    for k in range(max(len(left), len(right))):
        for side in ("left", "right"):
            if k >= len(words[side]):
                continue
            own = {name[len(side) + 1 :]: a for name, a in parameters.items() if side in name}
            seen = [
                [e for of, e in log if not slip or of in (side, "middle")]
                for log in (outputs, states)
            ]
            rows = np.array(seen[0]), np.array(seen[1]).reshape(-1, len(h))
            state[side] = middle_out_step(
                *state[side], last[side], memory, *rows, own, self_attention
            )
            z = own["vocabulary.weight"] @ state[side][0] + own["vocabulary.bias"]
            z = z - z.max()
            log_p[side].append(z - np.log(np.exp(z).sum()))
            last[side] = E[words[side][k]]
            outputs.append((side, last[side]))
            states.append((side, state[side][0]))
    return np.array(log_p["left"] + log_p["right"]).reshape(-1, len(E))


def middle_out_loss(left, middle, right, *rest, slip=False):
    """Slip: the right half alone."""
    log_p = middle_out_captioner(left, middle, right, *rest)
    picked = log_p[np.arange(len(log_p)), np.concatenate([left, right])]
    return -picked[len(left) if slip else 0 :].sum()


def symmetric_sequence(mu, N, slip=False):
    """Slip: sigma is mu."""
    n = np.abs(np.arange(-N, N + 1))
    return mu - n * (mu if slip else mu**2) / N


def mse(y_hat, y, slip=False):
    """Slip: a sum."""
    return ((y_hat - y) ** 2).sum() / (1 if slip else len(y))


def symmetric_mse(y_hat, slip=False):
    """Slip: the second half is not mirrored."""
    N = len(y_hat) // 2
    first = y_hat[:N] if slip else y_hat[:N][::-1]
    return ((first - y_hat[N + 1 :]) ** 2).mean()
