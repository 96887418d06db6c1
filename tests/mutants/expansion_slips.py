"""Slips in the expansions: (what is wrong, what catches it, old, new)."""

Slip = tuple[str, str, str, str]

SIGMOID = 'torch.sigmoid(linear(X, parameters, "selector"))'
MASKED = "X = torch.where(mask, X, 0)"


def _at_start(first: str, lines: str) -> tuple[str, str]:
    return first, f"{lines}\n    {first}"


START = "mask = valid(X, lengths)"

STATIC: list[Slip] = [
    ("epsilon 1e-8", "tiny", "P.sum(2, keepdim=True) + 1e-9", "P.sum(2, keepdim=True) + 1e-8"),
    ("epsilon 1e-12", "tiny", "P.sum(2, keepdim=True) + 1e-9", "P.sum(2, keepdim=True) + 1e-12"),
    ("no epsilon in the backward step", "one_sign", "[..., None] + 1e-9)", "[..., None])"),
    ("M not divided by sqrt(d)", "tiny", " / X.shape[-1] ** 0.5", ""),
    ("streams swapped", "equals_oracle", "(sign * M)", "(-sign * M)"),
    ("gates swapped", "equals_oracle", 'gate), (-1, "value_2", 1 - gate)',
     '1 - gate), (-1, "value_2", gate)'),
    ("values swapped", "equals_oracle", '"value_1", gate), (-1, "value_2"',
     '"value_2", gate), (-1, "value_1"'),
    ("no bias vectors", "equals_oracle", ' + parameters["bias_vectors"]', ""),
    ("groups summed", "block", ".mean(0)", ".sum(0)"),
    ("one sum for all groups", "block", *_at_start(START, "groups = (sum(groups),)")),
    ("padding seen by the expansion", "padded_batch", " * mask.mT\n", "\n"),
    ("padding hidden by a product", "padding_content", MASKED, "X = X * mask"),
    (
        "the first length for all",
        "padded_batch",
        *_at_start(START, "lengths = lengths[:1].expand(len(X))"),
    ),
    ("zero beyond 16 tokens", "large", "return out",
     "return out * (torch.arange(X.shape[1]) < 16)[:, None]"),
    ("zero beyond 128 channels", "large", "return out",
     "return out * (torch.arange(X.shape[2]) < 128)"),
    ("64 vectors at most", "large", "P = (sign * M).relu()",
     "P = (sign * M).relu() * (torch.arange(M.shape[1]) < 64)[:, None]"),
    ("4 groups at most", "large", "torch.stack(back)", "torch.stack(back[:4])"),
    ("8 sequences at most", "large_batch", "return out",
     "return out * (torch.arange(len(X)) < 8)[:, None, None]"),
    ("the first part's sequences in every part", "large_batch", START,
     "X = X[torch.arange(len(X)) % 8]\n    " + START),
    ("no gradient by the keys", "gradient", 'K = linear(X, parameters, "key")',
     'K = linear(X, parameters, "key").detach()'),
    ("a NaN gradient where there is padding", "padded_gradient", SIGMOID,
     SIGMOID.replace("(linear", "(torch.where(mask, linear").replace("))", ") / mask, 0))")),
    ("NaN of an empty sequence", "empty_sequence", "return out",
     "return out * (lengths / lengths)[:, None, None]"),
    ("float16 inside float32", "float32", "/ X.shape[-1] ** 0.5",
     "/ X.shape[-1] ** 0.5\n    M = M.half().to(M) if M.dtype == torch.float32 else M"),
    ("a few bits inside bfloat16", "bfloat16", "/ X.shape[-1] ** 0.5",
     "/ X.shape[-1] ** 0.5\n    M = (M * 8).round() / 8 if M.dtype == torch.bfloat16 else M"),
    ("an inaccurate sigmoid", "huge", SIGMOID, SIGMOID.replace("))", ").clamp(-20, 20))")),
    ("contiguous memory taken for granted", "strided", START,
     "X = torch.as_strided(X, X.shape, torch.empty(X.shape).stride())\n    " + START),
    ("rows taken to lie apart", "broadcast", START,
     "L, d = X.shape[1:]\n    X = torch.as_strided(X, X.shape, (X.stride(0), d * X.stride(2), X.stride(2)))\n    " + START),
    ("padding cleared in place", "padding_content", MASKED, "X.masked_fill_(~mask, 0)"),
    ("lengths changed in place", "padded_batch", START, START + "\n    lengths.sub_(1)"),
    ("a parameter is popped", "equals_oracle", "return out",
     "parameters.pop('selector.bias')\n    return out"),
    ("dropout left on", "equals_oracle", "return out",
     "return torch.nn.functional.dropout(out, 0.1)"),
    ("positions added", "token_order", "return out",
     "return out + 1e-6 * torch.arange(X.shape[1])[:, None]"),
    ("a single token is copied", "one_token", "return out", "return X if X.shape[1] == 1 else out"),
    ("a single group is not divided", "one_group", "return out",
     "return out * 2 if len(groups) == 1 else out"),
    ("zero products count as positive", "zeros", "P = (sign * M).relu() * mask.mT",
     "P = (sign * M).clamp(min=1e-6) * mask.mT"),
]  # fmt: skip

DYNAMIC: list[Slip] = [
    ("a token sees the next one", "causality", "dtype=torch.bool).tril()",
     "dtype=torch.bool).tril(1)"),
    ("a token does not see itself", "equals_oracle", "dtype=torch.bool).tril()",
     "dtype=torch.bool).tril(-1)"),
    ("the backward step sees what the forward step does", "equals_oracle", "seen = see if not causal else backward_mask(mask, L, N)",
     "seen = see"),
    ("always causal", "bidirectional", "if causal:", "if True:"),
    ("never causal", "causality", "if causal:", "if False:"),
    ("bias vectors without the condition", "equals_oracle", '(C[:, :, None] + parameters["bias_vectors"])',
     '(0 * C[:, :, None] + parameters["bias_vectors"])'),
    ("query vectors without the condition", "equals_oracle", '(C[:, :, None] + parameters["query_vectors"])',
     '(0 * C[:, :, None] + parameters["query_vectors"])'),
    ("vectors before tokens", "equals_oracle", '(C[:, :, None] + parameters["query_vectors"]).flatten',
     '(C[:, :, None] + parameters["query_vectors"]).transpose(1, 2).flatten'),
    ("epsilon 1e-8", "tiny", "P.sum(2, keepdim=True) + 1e-9", "P.sum(2, keepdim=True) + 1e-8"),
    ("M not divided by sqrt(d)", "tiny", " / d**0.5", ""),
    ("16 vectors a token at most", "large", "return out", "return out if N <= 16 else 0 * out"),
    ("zero beyond 32 tokens", "large", "return out",
     "return out * (torch.arange(L) < 32)[:, None]"),
    ("no gradient by the condition", "gradient", 'C, K = linear(X, parameters, "condition"),',
     'C, K = linear(X, parameters, "condition").detach(),'),
    ("padding seen by the forward step", "padded_batch", "see = mask.mT & mask.repeat_interleave(N, 1)",
     "see = (mask | True).mT & mask.repeat_interleave(N, 1)"),
    ("a single token is copied", "one_token", "return out", "return X if L == 1 else out"),
]  # fmt: skip
