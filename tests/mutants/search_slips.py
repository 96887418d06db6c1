"""Slips of searches, samples, rewards and updates: see ``slips``."""

from tests.mutants.expansion_slips import Slip

LIKELIEST = "int(np.argmax(log_p))"
GREEDY: list[Slip] = [
    ("forgets all words but the last", "equals_oracle", "next_log_probs(tuple(tokens))",
     "next_log_probs((start,) * (len(tokens) - 1) + (tokens[-1],))"),
    ("ties go to the higher token", "ties", LIKELIEST, "len(log_p) - 1 - int(np.argmax(log_p[::-1]))"),
    ("the start token does not count", "equals_oracle", "len(tokens) - slip)", "len(tokens) - 1)"),
    ("the sum, not over the tokens", "equals_oracle", "total / (len(tokens) - slip)", "total"),
    ("the probability", "equals_oracle", "total / (len(tokens) - slip)", "np.exp(total)"),
    ("the start token is no step", "equals_oracle", "len(tokens) < max_length and",
     "len(tokens) < max(max_length - 1, 2) and"),
    ("max_length words after the start token", "equals_oracle", "< max_length", "<= max_length"),
    ("goes on after the end", "equals_oracle", "tokens[-1] != end", "True"),
    ("the end is not written", "equals_oracle", "[(tokens,",
     "[(tokens[:-1] if len(tokens) > 1 and tokens[-1] == end else tokens,"),
    ("never the end as the first word", "equals_oracle", LIKELIEST,
     "max((k for k in range(len(log_p)) if len(tokens) > 1 or k != end), key=log_p.__getitem__)"),
    ("never a word twice in a row", "equals_oracle", LIKELIEST,
     "max((k for k in range(len(log_p)) if k != tokens[-1]), key=log_p.__getitem__)"),
    ("the least likely word", "equals_oracle", "np.argmax", "np.argmin"),
    ("reads the last token alone", "equals_oracle", "next_log_probs(tuple(tokens))",
     "next_log_probs(tuple(tokens[-1:]))"),
    ("5000 words at most", "large", "np.argmax(log_p)", "np.argmax(log_p[:5000])"),
    ("8192 words at most", "large", "np.argmax(log_p)", "np.argmax(log_p[:8192])"),
    ("20 words at most", "large", "< max_length and", "< min(max_length, 20) and"),
    ("log-probabilities kept by the model's identity", "same_objects",
     "next_log_probs(tuple(tokens))",
     "greedy.__dict__.setdefault((id(next_log_probs), *tokens),"
     " (next_log_probs, next_log_probs(tuple(tokens))))[1]"),
]  # fmt: skip

SAMPLE: list[Slip] = [
    (
        "forgets all words but the last",
        "equals_oracle",
        "next_log_probs(tuple(tokens))",
        "next_log_probs((start,) * (len(tokens) - 1) + (tokens[-1],))",
    ),
    ("the interval is open below", "zero", 'side="right"', 'side="left"'),
    ("not relative to the sum", "equals_oracle", "u * cumulated[-1]", "u"),
    ("the word after", "equals_oracle", 'side="right"))', 'side="right")) - 1'),
    (
        "words up to 128",
        "large",
        "word = quantile(log_p, u)",
        "word = min(quantile(log_p, u), 128)",
    ),
    ("20 words at most", "large", "for u in uniforms:", "for u in uniforms[:20]:"),
    ("goes on after the end", "equals_oracle", "if word == end:", "if False:"),
]

SCHEDULED: list[Slip] = [
    (
        "samples after the true words but the last",
        "equals_oracle",
        "tuple(read)",
        "(*y[: t - 1], read[-1])",
    ),
    ("the coin turned", "equals_oracle", "< epsilon", ">= epsilon"),
    ("samples after the true words", "always", "tuple(read)", "tuple(y[:t])"),
    ("coins of 32 words, over and over", "large", "coins[t - 1]", "coins[(t - 1) % 32]"),
    ("the uniform of the word after", "equals_oracle", "uniforms[t - 1]", "uniforms[t - 2]"),
]

PRINTED: list[Slip] = [
    ("forgets all words but the last", "equals_oracle", "next_log_probs(tokens)",
     "next_log_probs((start,) * (len(tokens) - 1) + tokens[-1:])"),
    ("what has ended leaves its place", "equals_oracle", "beam_size - len(done)", "beam_size"),
    ("by the mean", "equals_oracle", "sorted(done + live, key=lambda beam: -beam[1])",
     "sorted(done + live, key=lambda beam: -beam[1] / len(beam[0]))"),
    ("impossible words are taken", "impossible_words", "if p > -np.inf", "if True"),
    ("20 words at most", "large", "range(max_length - 1)", "range(min(max_length, 20) - 1)"),
    ("8 beams at most", "large", "beam_size - len(done)", "min(beam_size, 8) - len(done)"),
    ("what ends after 33 tokens is dropped", "large", "if beam[0][-1] == end]",
     "if beam[0][-1] == end and len(beam[0]) <= 33]"),
]  # fmt: skip

GRID: list[Slip] = [
    ("the second beam forgets all words but the last", "equals_oracle", "next_log_probs(tokens)",
     "next_log_probs((start,) * (len(tokens) - 1) + tokens[-1:])"),
    ("the word by chance counts", "equals_oracle", "p > -np.inf and k != end",
     "p > -np.inf and k not in (end, word)"),
    ("ends without the word", "equals_oracle", "and k != end", ""),
    ("words up to 128", "large", "if p > -np.inf]\n", "if p > -np.inf and k <= 128]\n"),
    ("5 hypotheses at most", "large", "[:num_return]", "[:min(num_return, 5)]"),
    ("the word within 32 steps alone", "large", "if log_p[word] > -np.inf:",
     "if log_p[word] > -np.inf and len(tokens) <= 32:"),
    ("a hypothesis twice", "equals_oracle", "once.items()", "(grown + taking)"),
    ("what takes the word precedes", "ties", "grown + taking:", "taking + grown:"),
]  # fmt: skip

OUTWARDS: list[Slip] = [
    ("the left half forgets all words but the last", "equals_oracle",
     "next_log_probs(left, right, side)",
     "next_log_probs((middle,) * (len(left) - 1) + left[-1:], right, side)"),
    ("the halves do not see each other", "equals_oracle", "next_log_probs(left, right, side)",
     'next_log_probs(*((left, (middle,) * len(right)) if side == "left" else ((middle,) * len(left), right)), side)'),
    ("no bonus of length", "equals_oracle", "+ len(beam[0]) + len(beam[1]) - 1", ""),
    ("words up to 128", "large", "if p > -np.inf", "if p > -np.inf and word <= 128"),
    ("5 hypotheses at most", "large", "[:num_return]", "[:min(num_return, 5)]"),
    ("right first", "equals_oracle", '"right" if turn % 2 else "left"',
     '"left" if turn % 2 else "right"'),
    ("the score has no middle", "equals_oracle", "len(beam[1]) - 1", "len(beam[1]) - 2"),
    ("20 words at most", "large", "range(2 * max_length - 2)", "range(min(2 * max_length - 2, 20))"),
]  # fmt: skip

HYPERBOLIC: list[Slip] = [
    ("a linear rise", "equals_oracle", "rate / (warmup - iteration)",
     "rate * (iteration + 1) / warmup"),
    ("the floor during the warm-up", "equals_oracle", "iteration >= warmup", "True"),
    ("annealed after the warm-up alone", "equals_oracle", "(iteration // batches_per_epoch",
     "(max(iteration - warmup, 0) // batches_per_epoch"),
]  # fmt: skip

LINEAR: list[Slip] = [
    ("starts from 0", "equals_oracle", "(iteration + 1) / warmup", "iteration / warmup"),
    ("annealed smoothly", "equals_oracle", "batches_per_epoch // anneal_every",
     "batches_per_epoch / anneal_every"),
]  # fmt: skip

SELF_BLEU: list[Slip] = [
    ("the caption among its references", "equals_oracle",
     "captions[:i] + captions[i + 1 :]", "captions"),
    ("one corpus", "equals_oracle",
     "np.mean([bleu([one], [of]) for one, of in zip(captions, rest, strict=True)], axis=0)",
     "bleu(captions, rest)"),
]  # fmt: skip

REWARD: list[Slip] = [
    ("frequencies of the images that are scored", "equals_oracle",
     "[corpus[i] for i in images], corpus)", "of := [corpus[i] for i in images], of)"),
    ("3 references at most", "large", "corpus[i] for i in images", "corpus[i][:3] for i in images"),
    ("one image after the other", "equals_oracle", "corpus[i] for i in images",
     "of for of, _ in zip(corpus * len(images), images)"),
    ("frequencies that grow with the candidates", "equals_oracle", "images], corpus)",
     "images], corpus + [[words] for words in candidates])"),
]  # fmt: skip

CLIP: list[Slip] = [
    ("1e-6 beside the norm", "equals_oracle", "threshold / torch.maximum(norm,",
     "threshold / torch.maximum(norm + 1e-6,"),
    ("a norm of each", "equals_oracle", "{name: scale * g for",
     "{name: g * threshold / max(float(g.norm()), threshold) for"),
    ("the first two alone", "equals_oracle", "in gradients.items()}",
     "in [*gradients.items()][:2]} | dict([*gradients.items()][2:])"),
    ("the first eight alone", "large", "in gradients.items()}",
     "in [*gradients.items()][:8]} | dict([*gradients.items()][8:])"),
    ("small gradients too", "small",
     "torch.maximum(norm, torch.full_like(norm, threshold))", "norm"),
]  # fmt: skip

DESCENT: list[Slip] = [
    ("uphill", "equals_oracle", "theta - alpha", "theta + alpha"),
    ("in place", "equals_oracle", "return theta - alpha", "theta -= alpha"),
    ("the sum", "equals_oracle", "gradients.mean(0)", "gradients.sum(0)"),
]

RADAM: list[Slip] = [
    ("its own epsilon", "equals_oracle", "v.sqrt() + epsilon", "v.sqrt() + 1e-9"),
    ("Adam", "equals_oracle", "if rho >= 5:", "if True:"),
    ("rectified above 4", "equals_oracle", "rho >= 5", "rho > 4"),
    ("epsilon beside the corrected moment", "equals_oracle",
     "(1 - beta_2**t) ** 0.5 / (v.sqrt() + epsilon)",
     "1 / ((v / (1 - beta_2**t)).sqrt() + epsilon)"),
    ("the moments of one step", "equals_oracle", "m = beta_1 * m + (1 - beta_1) * g", "m = g"),
    ("always the step of momentum", "as_run", "elif published:", "else:"),
    ("64 steps at most", "large", "for t, (g, lr) in",
     "gradients = gradients * (torch.arange(len(gradients)) < 64)[:, None]\n    for t, (g, lr) in"),
]  # fmt: skip

MORE: dict[str, list[Slip]] = {
    "greedy": GREEDY,
    "sample": SAMPLE,
    "scheduled_sampling": SCHEDULED,
    "printed_beam_search": PRINTED,
    "grid_beam_search": GRID,
    "middle_out_beam_search": OUTWARDS,
    "hyperbolic_warmup": HYPERBOLIC,
    "linear_warmup": LINEAR,
    "self_bleu": SELF_BLEU,
    "cider_d_reward": REWARD,
    "clip_gradients": CLIP,
    "gradient_descent": DESCENT,
    "radam": RADAM,
}
