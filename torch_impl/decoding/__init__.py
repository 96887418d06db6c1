"""Decoding: greedy, sampling, beam search, grid beam search, middle-out, ensembles."""

from torch_impl.common.protocols import CaptionModel, DecoderCache, IncrementalModel
from torch_impl.decoding.beams import Hypothesis
from torch_impl.decoding.search import (
    Samples,
    beam_search,
    greedy,
    inverse_cdf,
    sample,
    teacher_forced,
)

__all__ = [
    "CaptionModel",
    "DecoderCache",
    "Hypothesis",
    "IncrementalModel",
    "Samples",
    "beam_search",
    "greedy",
    "inverse_cdf",
    "sample",
    "teacher_forced",
]
