"""Right searches in NumPy, and with ``slip`` an easy mistake in each."""

import numpy as np


def greedy(next_log_probs, start, end, max_length, slip=False):
    """Slip: the start token does not count in the score."""
    tokens, total = [start], 0.0
    while len(tokens) < max_length and (len(tokens) == 1 or tokens[-1] != end):
        log_p = next_log_probs(tuple(tokens))
        tokens.append(int(np.argmax(log_p)))
        total += log_p[tokens[-1]]
    return [(tokens, total / (len(tokens) - slip))]
