"""PyTorch implementations of the oracle's functions, under the same names: batched, any device."""
