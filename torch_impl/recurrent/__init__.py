"""Recurrent networks (ARNet equations 1-4, read-only LSTM 6-10, 16, 17), batched.

One function, three implementations: ``literal``, a sequential loop under autograd;
``custom_backward``, one with a custom backward; ``library``, PyTorch's LSTM, where its equations
are these.
"""

from torch_impl.recurrent.attentive import AttentiveLSTM, SoftAttention
from torch_impl.recurrent.cell import DROPPED, READINGS, Masks, State, read_only_inputs
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
