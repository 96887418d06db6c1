"""Right candidates of words: beam search and metrics, as a stranger would write them."""

import math
from collections import Counter

import numpy as np


def beam_search(next_log_probs, start, end, beam_size, max_length, num_return):
    beams = [((start,), 0.0)]
    for _ in range(max_length - 1):
        grown = []
        for tokens, total in beams:
            if len(tokens) > 1 and tokens[-1] == end:
                grown.append((tokens, total))
                continue
            for token, p in enumerate(next_log_probs(tokens)):
                if p > -np.inf:
                    grown.append(((*tokens, token), total + p))
        beams = sorted(grown, key=lambda beam: -beam[1])[:beam_size]
    best = sorted(beams, key=lambda beam: -beam[1] / len(beam[0]))[:num_return]
    return [(tokens, total / len(tokens)) for tokens, total in best]


def grams(words, n):
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


def bleu(candidates, references):
    """Without smoothing: 0 where an order has no match."""
    c = sum(map(len, candidates))
    r = 0
    for words, of in zip(candidates, references, strict=True):
        r += min((abs(len(ref) - len(words)), len(ref)) for ref in of)[1]
    penalty = 0.0 if c == 0 else min(1.0, math.exp(1 - r / c))
    scores, product = [], 1.0
    for n in range(1, 5):
        correct = total = 0
        for words, of in zip(candidates, references, strict=True):
            most = Counter()
            for ref in of:
                most |= grams(ref, n)
            correct += sum((grams(words, n) & most).values())
            total += max(0, len(words) - n + 1)
        product *= correct / total if total else 0.0
        scores.append(penalty * product ** (1 / n))
    return np.array(scores)


def rouge_l(candidates, references):
    beta = 1.2
    scores = []
    for words, of in zip(candidates, references, strict=True):
        words = words or [""]
        precision = recall = 0.0
        for ref in of:
            ref = ref or [""]
            row = [0] * (len(ref) + 1)
            for word in words:
                before = row[:]
                for j, other in enumerate(ref):
                    row[j + 1] = before[j] + 1 if word == other else max(row[j], before[j + 1])
            precision, recall = (
                max(precision, row[-1] / len(words)),
                max(recall, row[-1] / len(ref)),
            )
        bottom = recall + beta**2 * precision
        scores.append((1 + beta**2) * precision * recall / bottom if bottom else 0.0)
    return np.array(scores)


def cider_d(candidates, references):
    images = len(references)
    frequency = Counter()
    for of in references:
        frequency.update({gram for ref in of for n in range(1, 5) for gram in grams(ref, n)})

    def weights(words, n):
        idf = {gram: math.log(images / max(1, frequency[gram])) for gram in grams(words, n)}
        return {gram: count * idf[gram] for gram, count in grams(words, n).items()}

    scores = []
    for words, of in zip(candidates, references, strict=True):
        total = 0.0
        for ref in of:
            gap = max(0, len(words) - 1) - max(0, len(ref) - 1)
            for n in range(1, 5):
                a, b = weights(words, n), weights(ref, n)
                dot = sum(min(a[gram], b[gram]) * b[gram] for gram in a if gram in b)
                norms = math.sqrt(sum(x * x for x in a.values()) * sum(x * x for x in b.values()))
                total += math.exp(-(gap**2) / 72) * dot / norms if norms else 0.0
        scores.append(10 * total / (4 * len(of)))
    return np.array(scores)
