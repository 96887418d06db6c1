"""Layers: attention, the transformer block, Swin, the KV cache."""
