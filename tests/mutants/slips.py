"""Slips that are easy to make, of every operator: (what is wrong, what catches it, old, new)."""

from tests.mutants.expansion_slips import DYNAMIC, STATIC, Slip
from tests.mutants.middle_out_slips import MIDDLE_OUT
from tests.mutants.mutant import Mutant
from tests.mutants.numerical_slips import NUMERICAL
from tests.mutants.read_only_slips import READ_ONLY
from tests.mutants.recurrent_slips import RECURRENT
from tests.mutants.search_slips import MORE

ATTEND = "F.scaled_dot_product_attention(q, k, v, see)"
ATTENTION: list[Slip] = [
    ("scores divided by sqrt(d)", "equals_oracle", ATTEND,
     "F.scaled_dot_product_attention(q, k, v, see, scale=X.shape[-1] ** -0.5)"),
    ("a mask aligned with the last key", "equals_oracle", "dtype=torch.bool).tril()",
     "dtype=torch.bool).tril(max(0, Y.shape[1] - X.shape[1]))"),
    ("padded keys have a score of zero", "padded_batch", ATTEND,
     "(q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~mask.mT[:, None], 0).masked_fill(~see & mask.mT[:, None], -1e300 if q.dtype == torch.float64 else -1e30).softmax(-1) @ v"),
    ("padding hidden by a product", "padding_content", "Y = torch.where(mask, Y, 0)",
     "Y = Y * mask"),
    ("heads interleaved", "equals_oracle", "(num_heads, -1)).transpose(1, 2) for",
     "(-1, num_heads)).permute(0, 3, 1, 2) for"),
    ("not causal", "causality", "if causal:", "if False:"),
    ("128 keys at most", "large", "see = mask.mT[:, None]",
     "see = mask.mT[:, None] & (torch.arange(Y.shape[1]) < 128)"),
    ("6 heads at most", "large", "out.transpose(1, 2)",
     "(out * (torch.arange(num_heads) < 6)[:, None, None]).transpose(1, 2)"),
    ("12 heads at most", "large", "out.transpose(1, 2)",
     "(out * (torch.arange(num_heads) < 12)[:, None, None]).transpose(1, 2)"),
    ("no gradient by the values", "gradient", "(q, k, v, see)", "(q, k, v.detach(), see)"),
    ("the queries' bias dropped", "equals_oracle", 'linear(X, p, "query")',
     'X @ p["query.weight"].mT'),
    ("the first length for all", "padded_batch", "mask = valid(Y, lengths)",
     "mask = valid(Y, lengths[:1].expand(len(Y)))"),
    ("float16 inside float32", "float32", ATTEND,
     "(F.scaled_dot_product_attention(q.half(), k.half(), v.half(), see).to(v) if v.dtype == torch.float32 else " + ATTEND + ")"),
    ("zero beyond 64 channels, but in float64", "float32", "return out.transpose",
     "out = out * (X.dtype == torch.float64 or X.shape[-1] <= 64)\n    return out.transpose"),
    ("keys of bfloat16 in float32, beyond 32 of them", "float32", "Y = torch.where(mask, Y, 0)",
     "Y = torch.where(mask, Y, 0)\n    Y = Y.bfloat16().float() if Y.dtype == torch.float32 and Y.shape[1] > 32 else Y"),
    ("zero beyond 32 queries", "large", "return out.transpose",
     "out = out * (torch.arange(X.shape[1]) < 32)[:, None]\n    return out.transpose"),
]  # fmt: skip

AOA: list[Slip] = [
    ("queries before attended values", "equals_oracle", "both = torch.cat(attend(X, Y, parameters, num_heads, causal, lengths), -1)",
     "both = torch.cat(attend(X, Y, parameters, num_heads, causal, lengths)[::-1], -1)"),
    ("no gate", "equals_oracle", " * gate", ""),
    ("a gate by tanh", "equals_oracle", "torch.sigmoid", "torch.tanh"),
    ("an inaccurate sigmoid", "huge", 'linear(both, parameters, "gate")',
     'linear(both, parameters, "gate").clamp(-20, 20)'),
    ("no gradient by the gate", "gradient", 'gate = torch.sigmoid(linear(both, parameters, "gate"))',
     'gate = torch.sigmoid(linear(both, parameters, "gate")).detach()'),
]  # fmt: skip

NORM = 'F.layer_norm(X, X.shape[-1:], parameters["weight"], parameters["bias"], 1e-5)'
LAYER_NORM: list[Slip] = [
    ("epsilon 1e-6", "equals_oracle", "1e-5)", "1e-6)"),
    ("an unbiased variance", "equals_oracle", NORM,
     '(X - X.mean(-1, keepdim=True)) / (X.var(-1, keepdim=True) + 1e-5).sqrt() * parameters["weight"] + parameters["bias"]'),
    ("epsilon beside the deviation", "equals_oracle", NORM,
     '(X - X.mean(-1, keepdim=True)) / (X.std(-1, keepdim=True, correction=0) + 1e-5) * parameters["weight"] + parameters["bias"]'),
    ("no weight", "equals_oracle", 'parameters["weight"]', "None"),
    ("no bias", "equals_oracle", 'parameters["bias"]', "None"),
    ("over all tokens", "equals_oracle", NORM,
     '(X - X.mean()) / (X.var(correction=0) + 1e-5).sqrt() * parameters["weight"] + parameters["bias"]'),
    ("256 channels at most", "large", "return " + NORM,
     "Y = " + NORM + "\n    return Y * (torch.arange(X.shape[-1]) < 256)"),
    ("no gradient by the mean", "gradient", NORM,
     '(X - X.mean(-1, keepdim=True).detach()) / (X.var(-1, keepdim=True, correction=0) + 1e-5).sqrt() * parameters["weight"] + parameters["bias"]'),
    ("a gradient of 16 rows alone", "gradient", "return " + NORM,
     "X = torch.cat([X[:16], X[16:].detach()])\n    return " + NORM),
    ("no gradient in float32", "gradient_float32", "return " + NORM,
     "return " + NORM + " if X.dtype == torch.float64 else (" + NORM + ").detach()"),
    ("the other sign of the gradient in float32", "gradient_float32", "return " + NORM,
     "X = X if X.dtype == torch.float64 else 2 * X.detach() - X\n    return " + NORM),
    ("large arrays taken to be contiguous", "strided", "return " + NORM,
     "X = torch.as_strided(X, X.shape, (X.shape[1], 1)) if X.numel() > 64 else X\n    return " + NORM),
    ("contiguous memory taken for granted in float32", "strided", "return " + NORM,
     "X = X if X.dtype == torch.float64 else torch.as_strided(X, X.shape, (X.shape[1], 1))\n    return " + NORM),
    ("cached by shape in float32", "no_state", "return " + NORM,
     "if X.dtype == torch.float64 or X.requires_grad:\n        return " + NORM + "\n    return layer_norm.__dict__.setdefault(str(X.shape), " + NORM + ").clone()"),
    ("kept by shape, not by precision", "precision_state", "return " + NORM,
     "d = X.shape[-1]\n    share = layer_norm.__dict__.setdefault(str(X.shape), torch.full((d,), 1 / d, dtype=X.dtype))\n    return (" + NORM + ") * share.to(X.dtype).sum()"),
    ("a row of one channel is 0 in float32", "one_channel", "return " + NORM,
     "return (" + NORM + ") * (X.dtype == torch.float64 or X.shape[-1] > 1)"),
    ("the gradient of the first use alone in float32", "gradient_used_twice", "return " + NORM,
     "first, layer_norm.seen = getattr(layer_norm, 'seen', None) is not X, X\n    X = X if first or X.dtype == torch.float64 else X.detach()\n    return " + NORM),
    ("cached by shape beyond 16 rows", "no_state", "return " + NORM,
     "if len(X) <= 16 or X.requires_grad:\n        return " + NORM + "\n    return layer_norm.__dict__.setdefault(str(X.shape), " + NORM + ").clone()"),
    ("0 of a constant row", "one_channel", "return " + NORM,
     "return (" + NORM + ") * (X.var(-1, keepdim=True, correction=0) > 0)"),
]  # fmt: skip

FEED_FORWARD: list[Slip] = [
    ("gelu", "equals_oracle", 'linear(X, parameters, "linear_1").relu()',
     'F.gelu(linear(X, parameters, "linear_1"))'),
    ("hidden units of float16's range", "huge", 'linear(X, parameters, "linear_1").relu()',
     'linear(X, parameters, "linear_1").relu().clamp(max=65504)'),
    ("no first bias", "equals_oracle", 'linear(X, parameters, "linear_1")',
     '(X @ parameters["linear_1.weight"].mT)'),
    ("1024 hidden channels at most", "large", ".relu(), parameters",
     '.relu() * (torch.arange(len(parameters["linear_1.bias"])) < 1024), parameters'),
    ("a leaking gradient", "gradient", 'linear(X, parameters, "linear_1").relu()',
     '(lambda h: h.relu() + 0.5 * (h - h.detach()))(linear(X, parameters, "linear_1"))'),
    ("no gradient in float32 unless all ask for one", "gradient_of_some", "return linear(linear(X, parameters",
     "if X.dtype == torch.float32 and X.requires_grad and not all(p.requires_grad for p in parameters.values()):\n        X = X.detach()\n    return linear(linear(X, parameters"),
    ("no gradient unless all ask for one", "gradient_of_some", "return linear(linear(X, parameters",
     "if X.requires_grad and not all(p.requires_grad for p in parameters.values()):\n        X = X.detach()\n    return linear(linear(X, parameters"),
]  # fmt: skip

ENCODER: list[Slip] = [
    ("no residual of the feed-forward", "equals_oracle", "return X + feed_forward",
     "return feed_forward"),
    ("the residual is normed", "equals_oracle", "X = X + mix(", "X = normed + mix("),
    ("the first norm twice", "equals_oracle", 'part(p, "norm_2")', 'part(p, "norm_1")'),
    ("no lengths for the mixer", "padded_batch", "False, lengths)",
     "False, lengths * 0 + X.shape[1])"),
]  # fmt: skip

DECODER: list[Slip] = [
    ("not causal", "causality", "num_heads, True, whole)", "num_heads, False, whole)"),
    ("a causal cross-attention", "equals_oracle", "num_heads, False, lengths)",
     "num_heads, True, lengths)"),
    ("no residual of the cross-attention", "equals_oracle", "X = X + attention(", "X = attention("),
    ("cross-attention without a norm", "equals_oracle", "attention(normed, memory",
     "attention(X, memory"),
]  # fmt: skip

CAPTIONER: list[Slip] = [
    ("embeddings not scaled", "equals_oracle", " * embedding.shape[1] ** 0.5", ""),
    ("no positions", "equals_oracle", ' + p["positions.weight"][: len(tokens)]', ""),
    ("reductions swapped", "equals_oracle", 'reduced(outputs, part(p, "encoder"), first)',
     'reduced(outputs, part(p, "encoder"), second if second != "linear" and first != "linear" and first != "none" else first)'),
    ("scores, not log-probabilities", "equals_oracle", ".log_softmax(-1)", ""),
    ("5000 words at most", "large", "return scores[0]",
     "scores[..., 5000:] -= 1\n    return scores[0]"),
]  # fmt: skip

CROSS_ENTROPY: list[Slip] = [
    ("padding counts", "padding", "[targets != pad_id]", ""),
    ("smoothing over V", "label_smoothing", "label_smoothing / (V - 1)", "label_smoothing / V"),
    ("the sum of words", "equals_oracle", ".mean()", ".sum()"),
    ("a mean of means", "padding", "-(smoothed * log_probs).sum(-1)[targets != pad_id].mean()",
     "-((smoothed * log_probs).sum(-1) * (targets != pad_id)).mean()"),
    ("no gradient", "gradient", "smoothed * log_probs", "smoothed * log_probs.detach()"),
    ("32 words of a caption at most", "large", "-(smoothed * log_probs)",
     "-(smoothed * log_probs * (torch.arange(targets.shape[1]) < 32)[:, None])"),
]  # fmt: skip

LOSS = "-((rewards - b) * (log_probs * mask).sum(-1)).mean()"
SELF_CRITICAL: list[Slip] = [
    ("the first words of a mask with holes", "equals_oracle", "log_probs * mask",
     "log_probs * (torch.arange(mask.shape[-1]) < mask.sum(-1, keepdim=True))"),
    ("the first word of a sample without words", "equals_oracle", "log_probs * mask",
     "log_probs * torch.cat([mask[..., :1] | ~mask.any(-1, keepdim=True), mask[..., 1:]], -1)"),
    ("no negative rewards", "equals_oracle", "K = rewards.shape[1]",
     "rewards = rewards.clamp_min(0)\n    K = rewards.shape[1]"),
    ("its sign", "equals_oracle", "return -(", "return ("),
    ("no gradient", "gradient", "(log_probs * mask)", "(log_probs.detach() * mask)"),
    ("its gradient's sign", "gradient", "return " + LOSS,
     "loss = " + LOSS + "\n    return 2 * loss.detach() - loss"),
    ("always over K", "leave_one_out", 'K - 1 if baseline == "leave_one_out" else K', "K"),
    ("always over K - 1", "printed", 'K - 1 if baseline == "leave_one_out" else K', "K - 1"),
    ("the baseline has its own reward", "equals_oracle", " - rewards\n", "\n"),
    ("padding counts", "equals_oracle", " * mask", ""),
    ("a mean over words", "equals_oracle", ".sum(-1)).mean()", ".mean(-1)).mean()"),
]  # fmt: skip

NOT_REORDERED = """def beam_search(next_log_probs, start, end, beam_size, max_length, num_return):
    beams, read = [((start,), 0.0)], [()]
    for _ in range(max_length - 1):
        grown = []
        for (tokens, total), cache in zip(beams, read):
            if len(tokens) > 1 and tokens[-1] == end:
                grown.append((tokens, total))
                continue
            log_p = next_log_probs((*cache[: len(tokens) - 1], tokens[-1]))
            grown += [((*tokens, k), total + p) for k, p in enumerate(log_p) if p > -np.inf]
        read = [(*cache, tokens[-1]) for (tokens, _), cache in zip(beams, read)]
        beams = sorted(grown, key=lambda beam: -beam[1])[:beam_size]
        read += read[:1] * (len(beams) - len(read))
    best = sorted(beams, key=lambda beam: -beam[1] / len(beam[0]))[:num_return]
    return [(tokens, total / len(tokens)) for tokens, total in best]"""
BEAM: list[Slip] = [
    ("ends when the likeliest hypothesis has ended", "early_end", "    best = sorted(",
     "        if num_return == 1 and beams[0][0][-1] == end:\n            break\n    best = sorted("),
    ("forgets all words but the last", "equals_oracle", "next_log_probs(tokens)",
     "next_log_probs((start,) * (len(tokens) - 1) + tokens[-1:])"),
    ("caches that are not reordered", "equals_oracle", "", NOT_REORDERED),
    ("hypotheses compete by their score", "distinct", "key=lambda beam: -beam[1])[:beam_size]",
     "key=lambda beam: -beam[1] / len(beam[0]))[:beam_size]"),
    ("ties go to the higher token", "ties", "key=lambda beam: -beam[1])[:beam_size]",
     "key=lambda beam: (-beam[1], [-t for t in beam[0]]))[:beam_size]"),
    ("impossible words are taken", "impossible_words", "if p > -np.inf", "if True"),
    ("4 beams at most", "large", "[:beam_size]", "[:min(beam_size, 4)]"),
    ("128 words at most", "large", "if p > -np.inf", "if p > -np.inf and token <= 128"),
    ("the best 4 of each 1,024 words", "large", "in enumerate(next_log_probs(tokens))",
     "in enumerate(np.concatenate([np.where(b >= np.sort(b)[-4 if len(b) == 1024 else -8 :][:1], b, -np.inf)"
     " for b in np.split(next_log_probs(tokens), range(1024, 10000, 1024))]))"),
    ("5 hypotheses at most", "large", "[:num_return]", "[:min(num_return, 5)]"),
    ("8 words of each hypothesis", "large", "in enumerate(next_log_probs(tokens))",
     "in sorted(sorted(enumerate(next_log_probs(tokens)), key=lambda p: -p[1])[:8])"),
    ("4 words of each hypothesis after the first", "large", "in enumerate(next_log_probs(tokens))",
     "in sorted(sorted(enumerate(next_log_probs(tokens)), key=lambda p: -p[1])"
     "[: 4 if len(tokens) > 1 else beam_size])"),
    ("finished hypotheses are dropped", "equals_oracle", "                grown.append((tokens, total))\n                continue",
     "                continue"),
    ("the start token does not count", "equals_oracle", "[(tokens, total / len(tokens))",
     "[(tokens, total / (len(tokens) - 1))"),
    ("the start token is no step", "equals_oracle", "range(max_length - 1)",
     "range(max(max_length - 2, 1))"),
    ("20 words at most", "large", "range(max_length - 1)", "range(min(max_length, 20) - 1)"),
    ("the worst comes first", "equals_oracle", "-beam[1] / len(beam[0]))[:num_return]",
     "beam[1] / len(beam[0]))[:num_return]"),
]  # fmt: skip

BLEU: list[Slip] = [
    ("no brevity penalty", "equals_oracle", "min(1.0, math.exp(1 - r / c))", "1.0"),
    ("matches are not clipped", "repeated_words", "(grams(words, n) & most).values()",
     "{g: k for g, k in grams(words, n).items() if g in most}.values()"),
    ("the first reference's length", "equals_oracle", "min((abs(len(ref) - len(words)), len(ref)) for ref in of)[1]",
     "len(of[0])"),
    ("of two lengths the longer", "equals_oracle", "(abs(len(ref) - len(words)), len(ref)) for ref in of)[1]",
     "(abs(len(ref) - len(words)), -len(ref)) for ref in of)[1] * -1"),
    ("the list of captions is emptied", "equals_oracle", "return np.array(scores)",
     "candidates.clear()\n    return np.array(scores)"),
    ("3 references at most", "large", "for ref in of:", "for ref in of[:3]:"),
    ("words cut to their first letter", "equals_oracle", "scores, product = [], 1.0",
     "scores, product = [], 1.0\n    candidates = [[word[0] for word in words] for words in candidates]\n    references = [[[word[0] for word in ref] for ref in of] for of in references]"),
    ("an n-gram counts 15 times at most", "large", "(grams(words, n) & most).values())",
     "min(k, 15) for k in (grams(words, n) & most).values())"),
    ("32 words at most", "large", "correct = total = 0",
     "correct = total = 0\n        candidates = [words[:32] for words in candidates]"),
]  # fmt: skip

ROUGE: list[Slip] = [
    ("beta 1", "equals_oracle", "beta = 1.2", "beta = 1.0"),
    ("the precision of the last reference", "equals_oracle", "max(precision, row[-1] / len(words))",
     "row[-1] / len(words)"),
    ("12 words at most", "large", "words = words or", "words = words[:12] or"),
    ("3 references at most", "large", "for ref in of:", "for ref in of[:3]:"),
    ("words cut to their first letter", "equals_oracle", "if word == other",
     "if word[:1] == other[:1]"),
    ("empty captions are nothing", "empty_captions", 'words = words or [""]',
     'words = words or ["nothing"]'),
]  # fmt: skip

CIDER: list[Slip] = [
    ("not clipped", "repeated_words", "min(a[gram], b[gram])", "a[gram]"),
    ("sigma 12", "equals_oracle", "/ 72", "/ 288"),
    ("0 to 1", "equals_oracle", "10 * total", "total"),
    ("3 references at most", "large", "references, references)",
     "*2 * [[of[:3] for of in references]])"),
    ("frequencies of captions", "equals_oracle", "frequency.update({gram for ref in of for n in range(1, 5) for gram in grams(ref, n)})",
     "frequency.update([gram for ref in of for n in range(1, 5) for gram in grams(ref, n)])"),
    ("12 words at most", "large", "for words, of in zip(candidates, references, strict=True):",
     "for words, of in zip([words[:12] for words in candidates], references, strict=True):"),
    ("document frequencies of 64 images", "large", "for of in corpus:", "for of in corpus[:64]:"),
]  # fmt: skip

TABLE: dict[str, list[Slip]] = {
    "static_expansion": STATIC,
    "dynamic_expansion": DYNAMIC,
    "multi_head_attention": ATTENTION,
    "attention_on_attention": AOA,
    "layer_norm": LAYER_NORM,
    "feed_forward": FEED_FORWARD,
    "encoder_layer": ENCODER,
    "decoder_layer": DECODER,
    "captioner": CAPTIONER,
    "cross_entropy": CROSS_ENTROPY,
    "self_critical": SELF_CRITICAL,
    "beam_search": BEAM,
    "bleu": BLEU,
    "rouge_l": ROUGE,
    "cider_d": CIDER,
    **RECURRENT,
    **READ_ONLY,
    **MIDDLE_OUT,
    **MORE,
}

WITHIN = {"multi_head_attention": "attend"}

SLIPS = [
    Mutant(operator, *slip, within=WITHIN.get(operator, ""))
    for table in (TABLE, NUMERICAL)
    for operator, slips in table.items()
    for slip in slips
]
