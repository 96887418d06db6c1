"""A toy captioner whose log-probabilities are a table, so that ties and sums are exact."""

import numpy as np
import torch
from hypothesis import strategies as st
from torch import nn

from torch_impl.decoding import search

PAD, START, END = 0, 1, 2


class Table(nn.Module):
    """The features are the model: row h of an image holds the log-probabilities (V,) of the next
    token, h a hash of the whole prefix modulo the image's length."""

    start_id, end_id, pad_id, max_length = START, END, PAD, 12

    def __init__(self):
        super().__init__()
        self.calls = 0

    def encode(self, features, lengths=None):
        return features

    def decode(self, tokens, memory, memory_lengths=None):
        self.calls += 1
        if memory_lengths is None:
            memory_lengths = torch.full((len(memory),), memory.shape[1])
        positions = torch.arange(tokens.shape[1])
        rows = ((tokens + 1) * (positions + 2)).cumsum(1) % memory_lengths.unsqueeze(1)
        return memory.gather(1, rows.unsqueeze(-1).expand(-1, -1, memory.shape[-1]))


def teacher_forced(model, features, lengths, captions):
    """``search.teacher_forced`` of lists: log-probabilities, 0 in padding, and the mask."""
    K = max(map(len, captions))
    T = max(len(caption) for of_image in captions for caption in of_image)
    tokens = torch.full((len(captions), K, T), model.pad_id)
    mask = torch.zeros((len(captions), K, T - 1), dtype=torch.bool)
    for b, of_image in enumerate(captions):
        for k, caption in enumerate(of_image):
            tokens[b, k, : len(caption)] = torch.tensor(caption)
            mask[b, k, : len(caption) - 1] = True
    return search.teacher_forced(model, features, lengths, tokens).where(mask, 0), mask


def table_oracle(table):
    def next_log_probs(prefix):
        row = sum((token + 1) * (position + 2) for position, token in enumerate(prefix))
        return np.asarray(table[row % len(table)])

    return next_log_probs


@st.composite
def tables(draw, vocabulary=(3, 7), images=(1, 4)):
    """Features and lengths of ``Table``: few distinct multiples of 1/4, so that ties abound and
    sums are exact, some of probability zero; NaN in the padding."""
    B, V = draw(st.integers(*images)), draw(st.integers(*vocabulary))
    L = draw(st.integers(1, 9))
    lengths = draw(st.lists(st.integers(1, L), min_size=B, max_size=B))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    features = -random.integers(0, draw(st.integers(1, 12)), size=(B, L, V)) / 4
    features[random.random((B, L, V)) < draw(st.sampled_from([0, 0.3]))] = -np.inf
    features[..., random.integers(V)] = -1  # so that no row is all zeros of probability
    for b, length in enumerate(lengths):
        features[b, length:] = np.nan
    dtype = draw(st.sampled_from([torch.float64, torch.float32, torch.bfloat16]))
    return torch.tensor(features, dtype=dtype), torch.tensor(lengths)


def oracles(features, lengths):
    values = features.double().numpy()
    return [table_oracle(table[:length]) for table, length in zip(values, lengths, strict=True)]


def one_row(*log_probs):
    """A model of one distribution, whatever the prefix."""
    return torch.tensor([[log_probs]], dtype=torch.float64), torch.tensor([1])


def plain(hypotheses):
    """Tokens, log-probabilities and score, to compare exactly."""
    return [(tuple(h.tokens), tuple(h.log_probs), h.score) for h in hypotheses]


sizes = st.integers(1, 9)
max_lengths = st.integers(2, 8)
