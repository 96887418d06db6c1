"""Recurrent networks (ARNet equations 1-4, read-only LSTM 6-10, 16, 17), batched, and a scan.

One function, several implementations of it: ``literal``, a loop of steps under autograd; ``scan``,
the same loop with its backward written by hand; ``library``, PyTorch's own LSTM, where it computes
the same equations.
"""

from torch_impl.recurrent.attentive import AttentiveLSTM, SoftAttention
from torch_impl.recurrent.cell import (
    DROPPED,
    READINGS,
    Masks,
    State,
    read_only_inputs,
)
from torch_impl.recurrent.lstm import IMPLEMENTATIONS, LSTM, BidirectionalLSTM

__all__ = [
    "DROPPED",
    "IMPLEMENTATIONS",
    "LSTM",
    "READINGS",
    "AttentiveLSTM",
    "BidirectionalLSTM",
    "Masks",
    "SoftAttention",
    "State",
    "read_only_inputs",
]
