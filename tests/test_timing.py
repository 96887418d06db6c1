"""The way things are timed, timed itself: on a simulated noisy machine, and once on a real one."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.errors import InputError
from benchmarks.perf import case_records, clock, resources, timing
from benchmarks.perf.cases.case import Work
from benchmarks.perf.timing import Budget, measure
from benchmarks.statistics import Estimate, median, paired_ratio, verdict

seeds = st.integers(0, 10_000)
times = st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=12)
CPU = torch.device("cpu")


def told_by(
    patch: pytest.MonkeyPatch, monotonic: Callable[[], float], wall: Callable[[], float]
) -> None:
    """Let the harness read these clocks."""
    for module in (timing, clock):
        patch.setattr(module, "perf_counter", monotonic)
    patch.setattr(clock, "wall_clock", wall)


class Machine:
    """A clock that only work moves: with noise, now and then a long pause, ever slower."""

    def __init__(self, seed: int, noise: float = 0.05) -> None:
        self.now, self.noise = 0.0, noise
        self.ahead = 0.0
        """Of the monotonic clock, the wall clock."""
        self.generator = np.random.default_rng(seed)
        self.calls: list[str] = []

    def work(self, seconds: float, name: str = "") -> Callable[[], None]:
        def call() -> None:
            self.calls.append(name)
            pause = 20 if self.generator.random() < 0.05 else 1
            drift = 1 + self.now / 20
            self.now += seconds * pause * drift * self.generator.lognormal(0, self.noise)

        return call

    def measure(self, functions: dict[str, Callable[[], None]], budget: Budget):
        with pytest.MonkeyPatch.context() as patch:
            told_by(patch, lambda: self.now, lambda: self.now + self.ahead)
            return measure(functions, "cpu", budget)


ROUNDS = Budget(seconds=1e-9, least=15, most=15)


@given(seeds, st.floats(1e-5, 0.1))
def test_work_done_twice_is_called_slower(seed, seconds):
    machine = Machine(seed)
    found = machine.measure({"a": machine.work(seconds), "b": machine.work(2 * seconds)}, ROUNDS)
    # the twin is as a rule the quicker; a pause in its first calls can make it the other
    assert found.verdict("b") == "slower"
    assert 0.4 < found.ratio("b").value < 0.6
    swapped = machine.measure({"b": machine.work(2 * seconds), "a": machine.work(seconds)}, ROUNDS)
    assert swapped.verdict("a") == "faster"


def test_equal_work_is_hardly_ever_called_different():
    called = Counter()
    for seed in range(200):
        machine = Machine(seed)
        work = {"a": machine.work(0.01), "b": machine.work(0.01)}
        called[machine.measure(work, ROUNDS).verdict("b")] += 1
    assert called["not settled"] >= 194


def test_a_real_function_that_works_twice_is_called_slower(monkeypatch):
    # by the time this thread got, which no other program's work is in
    told_by(monkeypatch, time.thread_time, time.thread_time)
    x = torch.randn(200, 200)

    def once():
        for _ in range(4):
            x @ x

    def twice():
        once()
        once()

    found = measure({"once": once, "twice": twice}, "cpu", Budget(0.5, least=30, most=60))
    assert found.verdict("twice") == "slower"


@given(seeds, st.integers(1, 4), st.integers(1, 9))
def test_all_take_turns_and_the_quickest_goes_twice(seed, count, rounds):
    machine = Machine(seed, noise=0)
    names = [str(i) for i in range(count)]
    work = {name: machine.work(10.0 ** -int(name), name) for name in names}
    budget = Budget(seconds=1e9, least=rounds, most=rounds, warm_up=3)
    found = machine.measure(work, budget)
    timed = machine.calls[3 * count :]
    assert Counter(machine.calls[: 3 * count]) == Counter(names * 3)
    turns = [timed[i : i + count + 1] for i in range(0, len(timed), count + 1)]
    assert [Counter(turn) for turn in turns] == [Counter([*names, found.twin])] * rounds
    assert found.rounds == rounds == len(found.samples["0"])
    assert found.baseline == "0"


@given(seeds, st.floats(0.1, 5), st.integers(1, 6))
def test_time_is_kept_but_for_the_least_rounds(seed, seconds, least):
    machine = Machine(seed, noise=0)
    machine.generator = np.random.default_rng(0)
    found = machine.measure({"a": machine.work(0.3)}, Budget(seconds, least=least, most=50))
    before_the_last = sum(found.samples["a"][:-1]) + sum(found.again[:-1])
    assert found.rounds >= least
    assert found.rounds == least or before_the_last < seconds


@given(
    seeds,
    st.sets(st.integers(0, 14), max_size=clock.MOST_JUMPS),
    st.floats(1, 1e9) | st.floats(-1e9, -1),
)
def test_a_round_in_which_a_clock_jumps_is_thrown_away_and_counted(seed, at, jump):
    machine = Machine(seed, noise=0)
    machine.generator = np.random.default_rng(0)
    work, warm_up = machine.work(1e-3), 2
    calls = 0

    def jumps():
        nonlocal calls
        calls += 1
        before = machine.now
        work()
        turn = (calls - warm_up - 1) / 2  # two calls a round: there is one function, and its twin
        if turn in at:
            machine.ahead += jump
            machine.now = before + 77.0  # a time nobody should see

    budget = Budget(1e9, least=15, most=15, warm_up=warm_up)
    found = machine.measure({"a": jumps}, budget)
    assert (found.jumps, found.rounds) == (len(at), 15)
    assert max(*found.samples["a"], *found.again) < 77


def test_a_clock_that_jumps_again_and_again_is_refused_and_small_drift_is_not():
    machine = Machine(0)

    def jumps(by: float):
        def call() -> None:
            machine.now += 10.0
            machine.ahead += by

        return call

    drift = machine.measure({"a": jumps(clock.DRIFT * 9)}, ROUNDS)
    assert (drift.jumps, drift.rounds) == (0, 15)
    with pytest.raises(InputError, match="the clock jumped in 6 rounds"):
        machine.measure({"a": jumps(3600.0)}, ROUNDS)
    assert gc.isenabled()


@given(times, st.floats(0.1, 10))
def test_intervals_scale_and_hold_the_value(samples, factor):
    for found, scaled in (
        (median(samples), median([factor * s for s in samples])),
        (
            paired_ratio(samples, samples[::-1]),
            paired_ratio([factor * s for s in samples], samples[::-1]),
        ),
    ):
        assert found.low <= found.value <= found.high
        for name in ("value", "low", "high"):
            assert getattr(scaled, name) == pytest.approx(factor * getattr(found, name))


@given(times)
def test_a_function_is_as_fast_as_itself(samples):
    assert paired_ratio(samples, samples) == Estimate(1, 1, 1)


@pytest.mark.parametrize(
    ("interval", "floor", "expected"),
    [
        ((1.3, 1.2, 1.4), 1.1, "faster"),
        ((1.3, 1.2, 1.4), 1.25, "not settled"),
        ((1.3, 0.9, 1.4), 1.0, "not settled"),
        ((0.7, 0.6, 0.8), 1.1, "slower"),
        ((0.7, 0.6, 0.95), 1.1, "not settled"),
        ((0.7, 0.6, 1.1), 1.0, "not settled"),
    ],
)
def test_a_verdict_needs_the_whole_interval_beyond_one_and_the_floor(interval, floor, expected):
    assert verdict(Estimate(*interval), floor, widen=True) == expected


def test_the_collector_runs_again_after_an_interruption():
    def interrupted():
        raise KeyboardInterrupt

    calls = iter([int, int, *[interrupted] * 9])
    with pytest.raises(KeyboardInterrupt):
        measure({"a": lambda: next(calls)()}, "cpu", Budget())
    assert gc.isenabled()


class Gpu:
    """The calls to CUDA, in order; its events are a second apart."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        self.seconds = 0.0
        gpu = self

        class Event:
            def __init__(self, *, enable_timing: bool) -> None:
                assert enable_timing

            def record(self) -> None:
                gpu.seconds += 1
                self.at = gpu.seconds
                gpu.asked.append("record")

            def elapsed_time(self, end: Event) -> float:
                return 1000 * (end.at - self.at)

        filler = SimpleNamespace(zero_=lambda: self.asked.append("fill"))
        properties = SimpleNamespace(
            L2_cache_size=7, name="a GPU", total_memory=80, multi_processor_count=132,
            major=9, minor=0,
        )  # fmt: skip
        for name, value in {
            "Event": Event,
            "synchronize": lambda device: self.asked.append("wait"),
            "get_device_properties": lambda device: properties,
            "reset_peak_memory_stats": lambda device: self.asked.append("reset"),
            "memory_allocated": lambda device: 100,
            "max_memory_allocated": lambda device: 175,
        }.items():
            patch.setattr(torch.cuda, name, value)
        patch.setattr(torch, "empty", lambda size, dtype, device: filler if size == 14 else None)


CUDA = torch.device("cuda")


def test_on_cuda_time_is_between_events_of_an_idle_device_with_an_empty_cache(monkeypatch):
    gpu = Gpu(monkeypatch)
    budget = Budget(1e-9, least=2, most=2, warm_up=1)
    found = measure({"a": lambda: gpu.asked.append("call")}, "cuda", budget)
    assert gpu.asked == ["fill", "wait", "record", "call", "record", "wait"] * 5
    assert found.samples == {"a": [1.0, 1.0]}


def test_on_cuda_the_cache_is_left_alone_if_told(monkeypatch):
    gpu = Gpu(monkeypatch)
    budget = Budget(1e-9, least=2, most=2, warm_up=1)
    measure({"a": lambda: gpu.asked.append("call")}, "cuda", budget, flush=False)
    assert gpu.asked == ["wait", "record", "call", "record", "wait"] * 5


def test_on_cuda_peak_memory_is_the_allocator_s(monkeypatch):
    gpu = Gpu(monkeypatch)
    assert resources.peak(lambda: gpu.asked.append("call"), CUDA) == 75
    assert gpu.asked == ["wait", "reset", "call", "wait"]
    assert resources.count(Work(lambda: torch.ones(1)), CUDA)["peak bytes"] == 75


def test_a_gpu_is_described_by_what_its_numbers_depend_on(monkeypatch):
    Gpu(monkeypatch)
    found = case_records.describe(CUDA, 3)
    assert found.name == "a GPU"
    assert (found.kind, found.threads, found.capability) == ("cuda", 3, "9.0")


def test_what_fails_in_its_first_call_is_left_out_but_for_the_baseline():
    def fails():
        raise ArithmeticError

    refused = {}
    budget = Budget(1e-9, least=3, most=3)
    found = measure({"a": int, "b": fails, "c": int}, "cpu", budget, refused)
    assert list(found.samples) == ["a", "c"]
    assert list(refused) == ["b"]
    for functions, into in (({"a": fails, "b": int}, {}), ({"a": int, "b": fails}, None)):
        with pytest.raises(ArithmeticError):
            measure(functions, "cpu", budget, into)


def test_what_cannot_be_is_named():
    with pytest.raises(ValueError, match="no functions"):
        measure({}, "cpu", Budget())
    with pytest.raises(ValueError, match="seconds is 0"):
        Budget(seconds=0)
    with pytest.raises(ValueError, match="least, most, warm_up are 5, 4, 2"):
        Budget(most=4)
    with pytest.raises(ValueError, match="2 and 1 rounds"):
        paired_ratio([1.0, 2.0], [1.0])


sizes = st.integers(1, 8)


@given(sizes, sizes, sizes)
def test_operations_of_a_product_are_two_a_multiply_accumulate(m, n, k):
    a, b = torch.zeros(m, k), torch.zeros(k, n)
    assert resources.count(Work(lambda: a @ b), CPU)["flops"] == 2 * m * n * k
    for vector in (lambda: a @ b[:, 0], lambda: torch.addmv(a[:, 0], a, b[:, 0])):
        assert resources.count(Work(vector), CPU)["flops"] == 2 * m * k
    assert resources.count(Work(lambda: a[0] @ b[:, 0]), CPU)["flops"] == 2 * k


@given(sizes, sizes, sizes, st.booleans(), st.booleans())
def test_attention_s_operations_are_those_of_its_products(T, L, d, trains, masked):
    """On a CPU one kernel does them all, forward; backward recomputes the weights."""
    Q, K, V = (torch.randn(2, 3, n, d, requires_grad=trains) for n in (T, L, L))
    mask = torch.ones(T, L, dtype=torch.bool) if masked else None

    def attend():
        out = torch.nn.functional.scaled_dot_product_attention(Q, K, V, attn_mask=mask)
        if trains:
            out.sum().backward()

    products = 2 * (7 if trains else 2)
    assert resources.count(Work(attend), CPU)["flops"] == 2 * 3 * products * T * L * d


@given(sizes, st.integers(1, 5))
def test_operators_are_counted_by_the_call(n, steps):
    x = torch.ones(n)

    def chain():
        for _ in range(steps):
            x.exp().view(-1, 1)

    assert resources.count(Work(chain), CPU)["operators"] == 2 * steps


@given(sizes, sizes)
def test_saved_storages_count_once_and_given_ones_never(m, n):
    x = torch.ones(m, n, requires_grad=True)
    w = torch.ones(n, n, requires_grad=True)

    def count(function, given):
        return resources.count(Work(function, given, trains=True), CPU)["saved bytes"]

    assert count(lambda: x @ w, (x, w)) == 0
    assert count(lambda: x @ w, (x,)) == 4 * n * n
    assert count(lambda: (x @ w).exp(), (x, w)) == 4 * m * n

    def views():
        y = x * 2
        return y[:1] @ w, y.t().exp() @ x

    # y for its first row and, whole, as a transpose's; exp's result; the given x and w not
    assert count(views, (x, w)) == 4 * m * n * 2


class Attributes(torch.autograd.Function):
    """Saves y = 2 x; and leaves of y, z = 3 x and x on its ``ctx``, one way or another."""

    @staticmethod
    def forward(ctx, x, leave):
        y, z = x * 2, x * 3
        ctx.save_for_backward(y)
        ctx.left = leave(y, z, x)
        return x * 5

    @staticmethod
    def backward(ctx, d_out):
        return d_out, None


@given(
    sizes,
    sizes,
    st.sampled_from(
        [
            (lambda *_: None, 1),
            (lambda y, z, x: (y, x), 1),
            (lambda y, z, x: [{"z": z[:1]}, z.t()], 2),
            (lambda y, z, x: SimpleNamespace(parts=(y, SimpleNamespace(z=z))), 2),
            (lambda y, z, x: lambda: z + x, 2),
        ]
    ),
    st.booleans(),
)
def test_what_a_function_leaves_on_its_context_is_saved_too(m, n, leaving, records):
    leave, storages = leaving
    x = torch.ones(m, n, requires_grad=records)
    work = Work(lambda: Attributes.apply(x, leave), [x], trains=True)
    assert resources.count(work, CPU)["saved bytes"] == (4 * m * n * storages if records else 0)
    assert resources.count(work, CPU) == resources.count(work, CPU)


@given(sizes, st.integers(1, 5))
def test_peak_is_what_lives_at_a_time(n, steps):
    x = torch.ones(n)

    def chain():
        y = x
        for _ in range(steps):
            y = y + 1
        return y.view(-1, 1)

    def fan():
        return [x + i for i in range(steps)]

    assert resources.count(Work(chain), CPU)["peak bytes"] == 4 * n * min(steps, 2)
    assert resources.count(Work(fan), CPU)["peak bytes"] == 4 * n * steps
    assert resources.count(Work(lambda: x.add_(1)), CPU)["peak bytes"] == 0


def test_a_pause_between_the_two_clocks_is_no_jump(monkeypatch):
    """A machine at work for others may stop a program between any two of its lines."""
    now = iter([0.0, 5.0, 5.0, 5.0, 5.0, 5.0])
    told_by(monkeypatch, lambda: next(now), lambda: 100 + next(now))
    assert clock.clocks() == (5.0, 105.0)
