"""The training objectives beside the kit's specifications: padding, gradients, the estimator."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.verify.draw import Draw
from benchmarks.verify.operators import OPERATORS
from benchmarks.verify.strategies import SEEDS
from benchmarks.verify.tolerances import assert_close, assert_derivative
from reference import objectives as oracle
from tests.support.covers import covers
from torch_impl.training import objectives

PADDED = "padding", "holes"
"""Choices of the kit's cases with positions that do not count."""


def cases(name):
    """The kit's cases of an operator, as tensors."""

    def drawn(seed):
        case = OPERATORS[name].case(Draw(seed, **dict.fromkeys(PADDED, True)))
        return [torch.tensor(x) if isinstance(x, np.ndarray) else x for x in case]

    return SEEDS.map(drawn)


def loss_and_gradient(objective, log_probs, *arguments):
    log_probs = log_probs.clone().requires_grad_()
    loss = objective(log_probs, *arguments)
    return loss.detach(), *torch.autograd.grad(loss, log_probs)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("name", ["cross_entropy", "self_critical"])
@given(st.data())
def test_what_padding_holds_changes_nothing(name, value, data):
    log_probs, *others = case = data.draw(cases(name))
    padding = (others[0] == others[1]).unsqueeze(-1) if name == "cross_entropy" else ~others[0]
    objective = getattr(objectives, name)
    found = loss_and_gradient(objective, log_probs.masked_fill(padding, value), *others)
    for mine, theirs in zip(found, loss_and_gradient(objective, *case), strict=True):
        assert torch.equal(mine, theirs)


def test_padding_alone_costs_nothing_and_an_impossible_word_everything():
    log_probs = torch.tensor([[[-torch.inf, 0.0], [-torch.inf, 0.0]]], requires_grad=True)
    nothing = objectives.cross_entropy(log_probs, torch.tensor([[0, 0]]), pad_id=0)
    assert nothing.item() == 0
    assert torch.autograd.grad(nothing, log_probs)[0].eq(0).all()
    possible = objectives.cross_entropy(log_probs, torch.tensor([[1, 0]]), pad_id=0)
    assert possible.item() == 0
    assert objectives.cross_entropy(log_probs, torch.tensor([[0, 1]]), pad_id=1).item() == torch.inf


@covers(expansionnet_v2=[14])
@given(cases("self_critical"))
def test_the_gradient_of_the_self_critical_loss_is_the_estimator(case):
    """-(r - b) times the gradient of the sample's log-probability, mean over samples; none by r."""
    log_probs, mask, rewards, kind = case
    log_probs.requires_grad_()
    rewards.requires_grad_()
    loss = objectives.self_critical(log_probs, mask, rewards, kind)
    (gradient,) = torch.autograd.grad(loss, log_probs)
    expected = np.zeros(mask.shape)
    for b, R in enumerate(rewards.detach().numpy()):
        for k, b_i in enumerate(oracle.baselines(R, kind)):
            by_token = mask[b, k].numpy().astype(np.float64)  # the derivative of the masked sum
            expected[b, k] = oracle.self_critical_gradient(by_token, float(R[k]), float(b_i))
    assert_close(gradient, expected / rewards.numel())
    assert not objectives.self_critical(log_probs.detach(), mask, rewards, kind).requires_grad


@covers(expansionnet_v1=[15], expansionnet_v2=[14])
@pytest.mark.parametrize("kind", ["leave_one_out", "printed"])
@pytest.mark.parametrize("K", [2, 3])
def test_the_estimator_is_unbiased(kind, K):
    """Its expectation, over all K-tuples of one-word samples, is the gradient of the negative
    expected reward."""
    random = np.random.default_rng(5)
    logits, reward = random.normal(size=4), random.normal(size=4)
    leaf = torch.tensor(logits, requires_grad=True)
    log_p = leaf.log_softmax(-1)
    loss = torch.zeros(())
    for words in itertools.product(range(4), repeat=K):
        drawn = log_p[list(words)]
        probability = drawn.sum().exp().detach()
        values = torch.tensor(reward[list(words)]).unsqueeze(0)
        mask = torch.ones(1, K, 1, dtype=torch.bool)
        estimate = objectives.self_critical(drawn.view(1, K, 1), mask, values, kind)
        loss = loss + probability * estimate
    (gradient,) = torch.autograd.grad(loss, leaf)

    def negative_expected_reward(logits):
        p = np.exp(logits - logits.max())
        return -float((p / p.sum()) @ reward)

    step = 1e-6
    differences = [
        (negative_expected_reward(logits + e) - negative_expected_reward(logits - e)) / (2 * step)
        for e in step * np.eye(4)
    ]
    assert_derivative(gradient, differences, "the expected estimate")


@given(st.sampled_from([2, 3, 5]), st.integers(-1000, 1000), SEEDS)
def test_leave_one_out_is_invariant_to_a_constant_reward(K, constant, seed):
    """Exactly: the numbers are small integers, the divisors powers of two."""
    random = torch.Generator().manual_seed(seed)
    log_probs = -torch.randint(0, 9, (2, K, 3), generator=random).double()
    rewards = torch.randint(-99, 99, (2, K), generator=random).double()
    mask = torch.ones_like(log_probs, dtype=torch.bool)
    expected = objectives.self_critical(log_probs, mask, rewards)
    assert objectives.self_critical(log_probs, mask, rewards + constant) == expected


def test_bad_input_is_named():
    log_probs, targets = torch.zeros(2, 3, 4), torch.zeros(2, 2, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"targets have shape \(2, 2\), expected \(2, 3\)"):
        objectives.cross_entropy(log_probs, targets, 0)
    for smoothing in (-0.1, 1.0):
        with pytest.raises(ValueError, match=f"label_smoothing is {smoothing}"):
            objectives.cross_entropy(log_probs[:, :2], targets, 0, smoothing)
    mask, rewards = torch.ones(2, 3, 4, dtype=torch.bool), torch.zeros(2, 3)
    with pytest.raises(ValueError, match=r"rewards \(2, 2\)"):
        objectives.self_critical(log_probs, mask, rewards[:, :2])
    with pytest.raises(ValueError, match=r"mask \(2, 3, 1\)"):
        objectives.self_critical(log_probs, mask[..., :1], rewards)
    with pytest.raises(ValueError, match="baseline is 'greedy', expected 'leave_one_out'"):
        objectives.self_critical(log_probs, mask, rewards, "greedy")
    with pytest.raises(ValueError, match="at least 2 samples"):
        objectives.self_critical(log_probs[:, :1], mask[:, :1], rewards[:, :1])
    with pytest.raises(ValueError, match="baseline is 'greedy'"):
        oracle.baselines(np.zeros(3), "greedy")
    with pytest.raises(ValueError, match="at least 2 samples"):
        oracle.baselines(np.zeros(1))
