"""The training objectives: parity with the oracle, and their gradients."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.verify.strategies import SEEDS
from benchmarks.verify.tolerances import assert_close, assert_derivative
from reference import objectives as oracle
from tests.support.covers import covers
from torch_impl.training import objectives

PAD = 0
BASELINES = ("leave_one_out", "printed")

smoothings = st.sampled_from([0.0, 0.1, 0.5, 0.99])


@st.composite
def captions(draw):
    """Logits (B, T, V) and targets (B, T) padded behind each caption; NaN logits in the padding."""
    lengths = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    V, T = draw(st.integers(2, 6)), max(lengths) + draw(st.integers(0, 2))
    random = torch.Generator().manual_seed(draw(SEEDS))
    scale = draw(st.sampled_from([0.0, 1.0, 50.0]))
    logits = scale * torch.randn(len(lengths), T, V, generator=random).double()
    targets = torch.randint(1, V, (len(lengths), T), generator=random)
    for b, length in enumerate(lengths):
        targets[b, length:] = PAD
        logits[b, length:] = torch.nan
    return logits, targets


def unpadded(x, targets):
    return [np.asarray(x[b, words != PAD]) for b, words in enumerate(targets)]


@covers(expansionnet_v1=[13], expansionnet_v2=[13])
@given(captions())
def test_cross_entropy_is_the_captions_sums_over_their_number_of_words(batch):
    logits, targets = batch
    log_probs = logits.log_softmax(-1)
    ours = objectives.cross_entropy(log_probs, targets, PAD)
    y_stars = unpadded(targets, targets)
    sums = [
        oracle.cross_entropy(log_p, y_star.tolist())
        for log_p, y_star in zip(unpadded(log_probs, targets), y_stars, strict=True)
    ]
    assert_close(ours, sum(sums) / sum(map(len, y_stars)))


@given(captions(), smoothings)
def test_smoothed_cross_entropy_is_the_oracles(batch, smoothing):
    logits, targets = batch
    log_probs = logits.log_softmax(-1)
    expected = oracle.smoothed_cross_entropy(
        unpadded(log_probs, targets), [y.tolist() for y in unpadded(targets, targets)], smoothing
    )
    assert_close(objectives.cross_entropy(log_probs, targets, PAD, smoothing), expected)


@given(captions(), smoothings)
def test_the_gradient_of_cross_entropy_is_the_softmax_less_the_smoothed_target(batch, smoothing):
    logits, targets = batch
    logits = logits.nan_to_num(0.0).requires_grad_()
    loss = objectives.cross_entropy(logits.log_softmax(-1), targets, PAD, smoothing)
    (gradient,) = torch.autograd.grad(loss, logits)
    V = logits.shape[-1]
    goal = torch.full_like(logits, smoothing / (V - 1))
    goal.scatter_(-1, targets.unsqueeze(-1), 1 - smoothing)
    expected = (logits.softmax(-1) - goal) * (targets != PAD).unsqueeze(-1) / (targets != PAD).sum()
    assert_close(gradient, expected.detach())


def test_padding_alone_costs_nothing_and_an_impossible_word_everything():
    log_probs = torch.tensor([[[-torch.inf, 0.0], [-torch.inf, 0.0]]], requires_grad=True)
    nothing = objectives.cross_entropy(log_probs, torch.tensor([[0, 0]]), pad_id=0)
    assert nothing.item() == 0
    assert torch.autograd.grad(nothing, log_probs)[0].eq(0).all()
    possible = objectives.cross_entropy(log_probs, torch.tensor([[1, 0]]), pad_id=0)
    assert possible.item() == 0
    assert objectives.cross_entropy(log_probs, torch.tensor([[0, 1]]), pad_id=1).item() == torch.inf


@st.composite
def samples(draw, at_least=1):
    """Log-probabilities and mask (B, K, T), NaN where masked, and rewards (B, K)."""
    B, K, T = draw(st.integers(1, 3)), draw(st.integers(at_least, 5)), draw(st.integers(1, 5))
    random = torch.Generator().manual_seed(draw(SEEDS))
    log_probs = -torch.rand(B, K, T, generator=random).double() * 5
    lengths = torch.randint(1, T + 1, (B, K, 1), generator=random)
    mask = torch.arange(T) < lengths
    rewards = torch.randn(B, K, generator=random).double() * draw(st.sampled_from([0.0, 1.0, 1e6]))
    return log_probs.masked_fill(~mask, torch.nan), mask, rewards


@covers(expansionnet_v1=[15])
@pytest.mark.parametrize("kind", BASELINES)
@given(samples(at_least=2))
def test_baselines_are_the_oracles(kind, case):
    rewards = case[2]
    expected = np.stack([oracle.baselines(R, kind) for R in rewards.numpy()])
    assert_close(objectives.baselines(rewards, kind), expected)


@covers(expansionnet_v1=[14, 15])
@pytest.mark.parametrize("kind", BASELINES)
@given(samples(at_least=2))
def test_self_critical_loss_is_the_mean_of_the_oracles(kind, case):
    log_probs, mask, rewards = case
    losses = [
        oracle.self_critical(log_probs[b, k][mask[b, k]].numpy(), float(R[k]), float(b_i))
        for b, R in enumerate(rewards.numpy())
        for k, b_i in enumerate(oracle.baselines(R, kind))
    ]
    assert_close(objectives.self_critical(*case, kind), np.mean(losses))


@covers(expansionnet_v2=[14])
@pytest.mark.parametrize("kind", BASELINES)
@given(samples(at_least=2))
def test_the_gradient_of_the_self_critical_loss_is_the_estimator(kind, case):
    """-(r - b) times the gradient of the sample's log-probability, mean over samples; none by r."""
    log_probs, mask, rewards = case
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
@pytest.mark.parametrize("kind", BASELINES)
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
        objectives.cross_entropy(log_probs, targets, PAD)
    for smoothing in (-0.1, 1.0):
        with pytest.raises(ValueError, match=f"label_smoothing is {smoothing}"):
            objectives.cross_entropy(log_probs[:, :2], targets, PAD, smoothing)
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
