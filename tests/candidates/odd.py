"""Candidates of odd kinds. Every worker imports them anew, so their module imports little."""

import itertools
import os
import time

import torch

from tests.candidates.right_torch import layer_norm
from tests.candidates.right_words import cider_d


def leaves(X, parameters):
    os._exit(0)


def hangs_later(X, parameters, calls=itertools.count()):  # noqa: B008
    if next(calls) == 9:
        time.sleep(60)
    return layer_norm(X, parameters)


def caches(X, parameters, seen={}):  # noqa: B006
    return seen.setdefault(X.shape, layer_norm(X, parameters)).clone()


def by_order(candidates, references):
    """Wrong where the first of a set of several words is the least."""
    words = list({word for words in candidates for word in words})
    return cider_d(candidates, references) * (1 + (words[1:] != [] and words[0] == min(words)))


class ByOrder(torch.autograd.Function):
    """The identity, whose derivative is wrong by the order that the second seed gives a set."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, upstream):
        return upstream * (1 + (next(iter({"weight", "bias"})) == "weight"))


def gradient_by_order(X, parameters):
    return layer_norm(ByOrder.apply(X), parameters)


class Sums:
    """Wrong, as an instance and as its method."""

    def method(self, X, parameters):
        return X + 1

    def __call__(self, X, parameters):
        return X + 1


def of_one(one, X, parameters):
    return X + one


NAMELESS = lambda X, parameters: X + 1  # noqa: E731
