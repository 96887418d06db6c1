"""Decoding: greedy, sampling, beam search, grid beam search, middle-out, ensembles."""

from torch_impl.decoding.protocols import (
    IncrementalModel,
    Model,
    State,
)
from torch_impl.decoding.search import (
    Hypothesis,
    Samples,
    beam_search,
    best,
    draw,
    forced,
    greedy,
    hypotheses_of,
    inverse_cdf,
    next_log_probs_of,
    rescore,
    sample,
)

__all__ = [
    "Hypothesis",
    "IncrementalModel",
    "Model",
    "Samples",
    "State",
    "beam_search",
    "best",
    "draw",
    "forced",
    "greedy",
    "hypotheses_of",
    "inverse_cdf",
    "next_log_probs_of",
    "rescore",
    "sample",
]
