"""Right candidates of losses in NumPy, and with ``slip`` an easy mistake in each."""

import numpy as np


def sentence_log_probability(log_probs, words, slip=False):
    """Slip: the first word is left out."""
    return log_probs[np.arange(len(words)), words][int(slip) :].sum()


def negative_log_likelihood(log_probs, words, slip=False):
    """Slip: each word by the row after its own."""
    return -log_probs[np.arange(len(log_probs)), words[:-1] if slip else words[1:]].sum()
