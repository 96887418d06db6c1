"""RAdam as run, the learning rates, and the recipes."""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.verify.tolerances import assert_close
from reference import optimisation as oracle
from torch_impl.training import optimisation
from torch_impl.training.optimisation import OPTIMISATION_PRESETS, SCHEDULES, Optimisation, RAdam


@st.composite
def runs(draw):
    """First parameters (a few, of different shapes), their gradients and a rate for each step."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shapes = draw(st.lists(st.sampled_from([(), (1,), (3,), (2, 3), (0,)]), min_size=1, max_size=3))
    steps = draw(st.integers(1, 12))
    scale = draw(st.sampled_from([0.0, 1e-12, 1.0, 1e6]))
    thetas = [random.normal(size=shape) for shape in shapes]
    gradients = [[scale * random.normal(size=shape) for shape in shapes] for _ in range(steps)]
    return thetas, gradients, list(random.uniform(0, 0.1, size=steps))


def follow(optimiser, run, start=0):
    """The parameters after each step from ``start`` on."""
    _, gradients, rates = run
    (group,) = optimiser.param_groups
    trajectory = []
    for gradient, rate in zip(gradients[start:], rates[start:], strict=True):
        group["lr"] = rate
        for theta, g in zip(group["params"], gradient, strict=True):
            theta.grad = torch.tensor(g)
        optimiser.step()
        trajectory.append([theta.detach().numpy().copy() for theta in group["params"]])
    return trajectory


def leaves(thetas):
    return [torch.tensor(theta, requires_grad=True) for theta in thetas]


@pytest.mark.parametrize("schedule", list(SCHEDULES))
@pytest.mark.parametrize("algorithm", ["radam", "radam-as-run"])
@settings(max_examples=2)
@given(st.integers(0, 99), st.sampled_from([0, 7, 60]))
def test_a_training_s_trajectory_is_the_oracle_s_over_hundreds_of_updates(
    algorithm, schedule, seed, warmup
):
    """The oracle's by the written-out gradients of the loss, a mean of squared errors."""
    random = np.random.default_rng(seed)
    X, y, theta = (random.normal(size=shape) for shape in ((20, 5), 20, 5))
    recipe = replace(
        OPTIMISATION_PRESETS["v2-as-run"],
        lr=0.01,
        warmup=warmup,
        schedule=schedule,
        algorithm=algorithm,
    )
    (ours,) = parameters = leaves([theta])
    optimiser = recipe.optimiser(parameters)
    warming = {"linear": oracle.linear_warmup, "hyperbolic": oracle.hyperbolic_warmup}[schedule]
    found, gradients, rates = [theta], [], []
    for iteration in range(250):
        (group,) = optimiser.param_groups
        group["lr"] = recipe.learning_rate(iteration, 20)
        optimiser.zero_grad()
        torch.autograd.backward(((torch.from_numpy(X) @ ours - torch.from_numpy(y)) ** 2).mean())
        optimiser.step()
        found.append(ours.detach().numpy().copy())

        rates.append(
            warming(
                iteration,
                lr=0.01,
                warmup=warmup,
                batches_per_epoch=20,
                anneal=recipe.anneal,
                anneal_every=recipe.anneal_every,
            )
        )
        gradients.append(2 * X.T @ (X @ found[-2] - y) / len(y))
    expected = oracle.radam(theta, gradients, rates, published=algorithm == "radam")
    for mine, theirs in zip(found[1:], expected, strict=True):
        assert_close(mine, theirs)
    assert np.linalg.norm(found[-1] - theta) > 0.1


@given(runs())
def test_radam_does_nothing_for_five_steps_and_then_what_pytorchs_does(run):
    thetas, gradients, rates = run
    still = (thetas, gradients, [0.0 if t < 5 else rate for t, rate in enumerate(rates)])
    published = torch.optim.RAdam(leaves(thetas), betas=(0.9, 0.98), eps=1e-9)
    expected, found = follow(published, still), follow(RAdam(leaves(thetas)), run)
    for t, (mine, theirs) in enumerate(zip(found, expected, strict=True)):
        for theta, a, b in zip(thetas, mine, theirs, strict=True):
            assert_close(a, b)
            assert t >= 5 or np.array_equal(a, theta)


@pytest.mark.parametrize("algorithm", optimisation.ALGORITHMS)
def test_idle_updates_are_those_that_change_nothing(algorithm):
    recipe = replace(OPTIMISATION_PRESETS["v2-paper"], algorithm=algorithm)
    theta = torch.ones(3, requires_grad=True)
    optimiser = recipe.optimiser([theta])
    unchanged = 0
    while torch.equal(theta, torch.ones(3)):
        theta.grad = torch.ones(3)
        optimiser.step()
        unchanged += 1
    assert recipe.idle_updates == unchanged - 1


def test_pytorchs_radam_moves_in_the_first_five_steps():
    """The difference is there: a step of 0.1 of momentum against none."""
    run = ([np.ones(1)], [[np.ones(1)]], [0.1])
    assert follow(torch.optim.RAdam(leaves(run[0]), betas=(0.9, 0.98)), run)[0][0] == [0.9]
    assert follow(RAdam(leaves(run[0])), run)[0][0] == [1.0]


@given(runs(), st.data())
def test_radam_resumes_from_its_state(run, data):
    thetas, gradients, rates = run
    whole = follow(RAdam(leaves(thetas)), run)
    cut = data.draw(st.integers(1, len(gradients)))
    first = RAdam(leaves(thetas))
    middle = follow(first, (thetas, gradients[:cut], rates[:cut]))[-1]
    second = RAdam(leaves(middle))
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    for mine, theirs in zip(follow(second, run, start=cut), whole[cut:], strict=True):
        for a, b in zip(mine, theirs, strict=True):
            assert np.array_equal(a, b)


def test_a_parameter_without_gradient_keeps_its_value_and_its_count():
    a, b = leaves([np.ones(2), np.ones(2)])
    optimiser = RAdam([a, b], lr=0.1)
    for step in range(8):
        a.grad = torch.ones_like(a)
        b.grad = torch.ones_like(b) if step >= 4 else None
        optimiser.step()
    assert (a < 1).all()
    assert b.tolist() == [1.0, 1.0]  # its fourth step
    assert [optimiser.state[theta]["step"] for theta in (a, b)] == [8, 4]


def test_the_closure_is_evaluated_with_gradients():
    (theta,) = leaves([np.array([2.0])])
    optimiser = RAdam([theta], lr=0.1)

    def closure():
        optimiser.zero_grad()
        loss = (theta**2).sum()
        (theta.grad,) = torch.autograd.grad(loss, theta)
        return loss.item()

    losses = [optimiser.step(closure) for _ in range(50)]
    assert losses[0] == 4.0
    assert losses[-1] < 2.0


def test_radam_names_bad_arguments():
    theta = leaves([np.ones(1)])
    with pytest.raises(ValueError, match="lr is -1"):
        RAdam(theta, lr=-1)
    with pytest.raises(ValueError, match="betas are"):
        RAdam(theta, betas=(1.0, 0.98))
    with pytest.raises(ValueError, match=r"beta_2 is 0\.5"):
        RAdam(theta, betas=(0.9, 0.5))
    with pytest.raises(ValueError, match="eps is -1"):
        RAdam(theta, eps=-1)
    theta[0].grad = torch.ones(1, dtype=torch.float64).to_sparse()
    with pytest.raises(ValueError, match="sparse"):
        RAdam(theta).step()


schedules = st.fixed_dictionaries(
    {
        "lr": st.sampled_from([2e-4, 1e-4, 1.0]),
        "warmup": st.integers(0, 50),
        "batches_per_epoch": st.integers(1, 20),
        "anneal": st.sampled_from([0.55, 0.8, 1.0]),
        "anneal_every": st.integers(1, 3),
    }
)


COCO = {"lr": 2e-4, "warmup": 10_000, "batches_per_epoch": 11_800, "anneal": 0.8, "anneal_every": 2}


@pytest.mark.parametrize(
    ("iteration", "hyperbolic", "linear"),
    [
        (0, 2e-8, 2e-8),
        (5_000, 4e-8, 1.0002e-4),
        (9_000, 2e-7, 1.8002e-4),
        (9_998, 1e-4, 1.9998e-4),
        (9_999, 2e-4, 2e-4),
        (10_000, 2e-4, 2e-4),
        (23_599, 2e-4, 2e-4),
        (23_600, 1.6e-4, 1.6e-4),
        (70_800, 2e-4 * 0.8**3, 2e-4 * 0.8**3),
    ],
)
def test_known_learning_rates(iteration, hyperbolic, linear):
    assert_close(optimisation.hyperbolic_warmup(iteration, **COCO), hyperbolic)
    assert_close(optimisation.linear_warmup(iteration, **COCO), linear)


def test_the_hyperbolic_rate_has_a_floor_after_the_warm_up_alone():
    late = 11_800 * 2 * 40
    assert optimisation.hyperbolic_warmup(late, **COCO) == 5e-7
    assert optimisation.linear_warmup(late, **COCO) < 5e-7
    assert optimisation.hyperbolic_warmup(0, **COCO) < 5e-7


@given(schedules)
def test_both_warm_ups_rise_to_the_same_rate_in_the_same_step(options):
    top = max(options["warmup"] - 1, 0)
    for schedule in SCHEDULES.values():
        rates = [schedule(it, **{**options, "anneal": 1.0}) for it in range(top + 10)]
        assert rates == sorted(rates)
        assert max(rates[:top], default=0.0) < options["lr"]
        assert_close(rates[top:], np.full(10, options["lr"]))


@given(runs(), st.floats(1e-3, 1e3))
def test_clipping_gives_the_norm_of_before(run, threshold):
    g = run[1][0]
    ours = [torch.tensor(part) for part in g]
    norm = optimisation.clip_gradients(ours, threshold)
    assert_close(norm, np.linalg.norm(np.concatenate([part.ravel() for part in g])))
    assert optimisation.clip_gradients([torch.tensor([3.0, 4.0])], None) == 5
    for bad in (0.0, -threshold, float("nan")):
        with pytest.raises(ValueError, match=f"threshold is {bad}, expected above 0"):
            optimisation.clip_gradients(ours, bad)


def test_recipes_are_the_papers_and_as_run():
    for name, recipe in {
        "v1-paper": Optimisation(2e-4, 10_000, "linear", 0.8, 2, 12, 48, 0.0, 0.1, "radam"),
        "v1-as-run": Optimisation(
            2e-4, 20_000, "hyperbolic", 0.8, 2, 25, 48, 0.1, 0.3, "radam-as-run"
        ),
        "v2-paper": Optimisation(2e-4, 10_000, "linear", 0.8, 2, 8, 48, 0.0, 0.1, "radam"),
        "v2-as-run": Optimisation(
            2e-4, 10_000, "hyperbolic", 0.8, 2, 8, 48, 0.1, 0.3, "radam-as-run"
        ),
    }.items():
        assert OPTIMISATION_PRESETS[name] == recipe


def test_presets_have_their_optimiser_and_learning_rates():
    as_run = replace(OPTIMISATION_PRESETS["v2-as-run"], warmup=100)
    assert_close(as_run.learning_rate(50, 1000), 4e-6)
    assert_close(as_run.learning_rate(2000, 1000), 1.6e-4)
    assert_close(
        replace(OPTIMISATION_PRESETS["v2-paper"], warmup=100).learning_rate(49, 1000), 1e-4
    )
    for name, kind in {"v2-as-run": RAdam, "v2-paper": torch.optim.RAdam}.items():
        optimiser = OPTIMISATION_PRESETS[name].optimiser(leaves([np.ones(1)]))
        assert type(optimiser) is kind
        assert optimiser.defaults["betas"] == (0.9, 0.98)
        assert optimiser.defaults["eps"] == 1e-9


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("lr", 0.0),
        ("lr", math.nan),
        ("warmup", -1),
        ("schedule", "cosine"),
        ("anneal", 0.0),
        ("anneal", 1.5),
        ("anneal_every", 0),
        ("epochs", 0),
        ("batch_size", 0),
        ("label_smoothing", 1.0),
        ("dropout", -0.1),
        ("algorithm", "none"),
        ("clip", 0.0),
    ],
)
def test_a_recipe_names_the_field_that_is_wrong(field, value):
    with pytest.raises(ValueError, match=f"^{field} is"):
        replace(OPTIMISATION_PRESETS["v2-paper"], **{field: value})
