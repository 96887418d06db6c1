"""Right candidates in PyTorch of padded batches by masks, whose valid rows may stand anywhere."""

from tests.candidates import right_torch


def static_expansion(X, parameters, groups, mask):
    return right_torch.static_expansion(X, parameters, groups, mask)


def dynamic_expansion(X, parameters, causal, mask):
    return right_torch.dynamic_expansion(X, parameters, causal, mask)


def multi_head_attention(X, Y, parameters, num_heads, causal, mask):
    return right_torch.multi_head_attention(X, Y, parameters, num_heads, causal, mask)


def attention_on_attention(X, Y, parameters, num_heads, causal, mask):
    return right_torch.attention_on_attention(X, Y, parameters, num_heads, causal, mask)


def encoder_layer(X, parameters, mixer, num_heads, mask):
    return right_torch.encoder_layer(X, parameters, mixer, num_heads, mask)


def decoder_layer(X, memory, parameters, mixer, num_heads, mask):
    return right_torch.decoder_layer(X, memory, parameters, mixer, num_heads, mask)
