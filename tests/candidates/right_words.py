"""Right candidates of words: searches, metrics, learning rates, as a stranger would write them."""

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


def sample(next_log_probs, uniforms, start, end):
    tokens, total = [start], 0.0
    for u in uniforms:
        log_p = next_log_probs(tuple(tokens))
        word = quantile(log_p, u)
        tokens.append(word)
        total += log_p[word]
        if word == end:
            break
    return [(tokens, total / len(tokens))]


def scheduled_sampling(next_log_probs, y, epsilon, coins, uniforms):
    read = [y[0]]
    for t in range(1, len(y)):
        word = y[t]
        if coins[t - 1] < epsilon:
            word = quantile(next_log_probs(tuple(read)), uniforms[t - 1])
        read.append(word)
    return read


def quantile(log_p, u):
    cumulated = np.exp(log_p).cumsum()
    return int(np.searchsorted(cumulated, u * cumulated[-1], side="right"))


def printed_beam_search(next_log_probs, start, end, beam_size, max_length):
    done, live = [], [((start,), 0.0)]
    for _ in range(max_length - 1):
        grown = [
            ((*tokens, word), total + p)
            for tokens, total in live
            for word, p in enumerate(next_log_probs(tokens))
            if p > -np.inf
        ]
        best = sorted(grown, key=lambda beam: -beam[1])[: beam_size - len(done)]
        done += [beam for beam in best if beam[0][-1] == end]
        live = [beam for beam in best if beam[0][-1] != end]
    return sorted(done + live, key=lambda beam: -beam[1])


def grid_beam_search(next_log_probs, word, start, end, beam_size, max_length, num_return):
    without, having = [((start,), 0.0)], []
    for _ in range(max_length - 1):
        grown, taking = [], []
        for tokens, total in having:
            if tokens[-1] == end:
                grown.append((tokens, total))
                continue
            log_p = next_log_probs(tokens)
            log_p += total  # what a model gives is new
            grown += [((*tokens, k), p) for k, p in enumerate(log_p) if p > -np.inf]
        stay = []
        for tokens, total in without:
            log_p = next_log_probs(tokens)
            stay += [
                ((*tokens, k), total + p) for k, p in enumerate(log_p) if p > -np.inf and k != end
            ]
            if log_p[word] > -np.inf:
                taking.append(((*tokens, word), total + log_p[word]))
        once = {}
        for tokens, total in grown + taking:
            once.setdefault(tokens, total)
        having = sorted(once.items(), key=lambda beam: -beam[1])[:beam_size]
        without = sorted(stay, key=lambda beam: -beam[1])[:beam_size]
    best = sorted(having, key=lambda beam: -beam[1] / len(beam[0]))[:num_return]
    return [(tokens, total / len(tokens)) for tokens, total in best]


def middle_out_beam_search(next_log_probs, middle, end, beam_size, max_length, num_return):
    beams = [((middle,), (middle,), 0.0)]

    def score(beam):
        return beam[2] + len(beam[0]) + len(beam[1]) - 1

    for turn in range(2 * max_length - 2):
        side = "right" if turn % 2 else "left"
        grown = []
        for left, right, total in beams:
            own = left if side == "left" else right
            if len(own) > 1 and own[-1] == end:
                grown.append((left, right, total))
                continue
            for word, p in enumerate(next_log_probs(left, right, side)):
                if p > -np.inf:
                    halves = ((*left, word), right) if side == "left" else (left, (*right, word))
                    grown.append((*halves, total + p))
        beams = sorted(grown, key=score, reverse=True)[:beam_size]
    return [([*beam[0][::-1], *beam[1][1:]], score(beam)) for beam in beams[:num_return]]


def hyperbolic_warmup(iteration, lr, warmup, batches_per_epoch, anneal, anneal_every, floor):
    rate = lr * anneal ** (iteration // batches_per_epoch // anneal_every)
    if iteration >= warmup:
        return max(rate, floor)
    return rate / (warmup - iteration)


def linear_warmup(iteration, lr, warmup, batches_per_epoch, anneal, anneal_every):
    rise = min(1.0, (iteration + 1) / warmup) if warmup else 1.0
    return lr * rise * anneal ** (iteration // batches_per_epoch // anneal_every)


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


def self_bleu(captions):
    rest = [captions[:i] + captions[i + 1 :] for i in range(len(captions))]
    return np.mean([bleu([one], [of]) for one, of in zip(captions, rest, strict=True)], axis=0)


def cider_d(candidates, references):
    return against(candidates, references, references)


def cider_d_reward(candidates, images, corpus):
    return against(candidates, [corpus[i] for i in images], corpus)


def against(candidates, references, corpus):
    images = len(corpus)
    frequency = Counter()
    for of in corpus:
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
