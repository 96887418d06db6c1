"""The roofline: monotone in what a device can do, and its kernels those that a call dispatches."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.perf import resources
from benchmarks.perf.cases.case import (
    Case,
    Sizes,
    Subject,
    Work,
)
from benchmarks.perf.cases.self_critical import SUBJECT as SELF_CRITICAL
from benchmarks.perf.cases.suites import SUBJECTS
from benchmarks.perf.flops.closed_forms import (
    Length,
    components,
    seconds,
)
from benchmarks.perf.kernels import Kernel, dispatched
from benchmarks.perf.roofline.devices import find_spec
from benchmarks.perf.roofline.roofline import BOUNDS, predict
from benchmarks.verify.tolerances import SUMS
from torch_impl.models import Captioner, Configuration

CPU = torch.device("cpu")
GPU = find_spec("A100")
amounts = st.integers(0, 10**12)
kernels = st.lists(st.builds(Kernel, st.just("mm"), amounts, amounts), max_size=8)
factors = st.floats(1.0, 100.0)


def subject(call, *given):
    """What ``call`` does with fake tensors like the given ones."""

    def make(case, implementation, device):
        tensors = [torch.empty_strided(x.shape, x.stride(), dtype=x.dtype) for x in given]
        return Work(lambda: call(*tensors))

    return Case(Subject("one", "", (), ("it",), make=make), ("it",))


def launched(call, *given):
    return dispatched(subject(call, *given), "it", cuda=True)


@given(kernels, factors, st.sampled_from(("peak", "bandwidth", "launch")))
def test_a_better_device_is_never_slower(listed, factor, what):
    better = {
        "peak": {"peak": {name: factor * value for name, value in GPU.peak.items()}},
        "bandwidth": {"bandwidth": factor * GPU.bandwidth},
        "launch": {"launch": GPU.launch / factor},
    }[what]
    assert predict(listed, replace(GPU, **better)).seconds <= predict(listed, GPU).seconds


@given(kernels, st.sampled_from((2.0, 4.0, 0.5)))
def test_a_device_that_is_better_in_everything_is_as_much_faster(listed, factor):
    better = replace(
        GPU,
        peak={name: factor * value for name, value in GPU.peak.items()},
        bandwidth=factor * GPU.bandwidth,
        launch=GPU.launch / factor,
    )
    ours, other = predict(listed, GPU), predict(listed, better)
    assert factor * other.seconds == pytest.approx(ours.seconds)
    assert all(ours.share(bound) == pytest.approx(other.share(bound)) for bound in BOUNDS)


@given(kernels, kernels)
def test_a_call_takes_as_long_as_its_kernels_and_as_each_need_of_all(first, second):
    whole, parts = predict([*first, *second], GPU), (predict(first, GPU), predict(second, GPU))
    assert whole.seconds == pytest.approx(sum(part.seconds for part in parts))
    assert whole.launches == len(first) + len(second)
    unlaunched = predict([*first, *second], replace(GPU, launch=1e-30))
    assert whole.graphed == pytest.approx(unlaunched.seconds)
    assert whole.graphed <= whole.seconds
    least = (
        whole.flops / GPU.peak["float32"],
        whole.bytes / GPU.bandwidth,
        whole.launches * GPU.launch,
    )
    assert whole.seconds * (1 + SUMS) >= max(least)
    assert whole.seconds <= sum(least) * (1 + SUMS)
    if whole.launches:
        assert sum(map(whole.share, BOUNDS)) == pytest.approx(1)


def test_products_are_as_fast_as_their_precision():
    product = [Kernel("mm", 1e12, 0)]
    for precision in ("float32", "tf32"):
        assert predict(product, GPU, precision).seconds == 1e12 / GPU.peak[precision]
    half = [replace(product[0], precision="bfloat16")]
    assert predict(half, GPU, "tf32").seconds == 1e12 / GPU.peak["bfloat16"]
    with pytest.raises(ValueError, match="no peak in bfloat16, expected one of float32"):
        predict(half, find_spec("K80"))


@pytest.mark.parametrize("implementation", ["literal", "factored"])
@pytest.mark.parametrize(
    "name",
    ["static-operator forward", "decoder forward+backward", "encoder forward+backward"],
)
def test_flops_are_those_that_really_run(name, implementation):
    case = Case(SUBJECTS[name], (implementation,), Sizes().tiny())
    work = case.work(implementation, CPU)
    really = resources.count(work, CPU)["flops"]
    assert really > 0
    for cuda in (False, True):
        assert sum(k.flops for k in dispatched(case, implementation, cuda=cuda)) == really


sizes = st.builds(
    lambda batch, length, vectors, d: Sizes(
        batch=batch,
        length=length,
        tokens=length,
        d_model=d,
        encoder=f"static:{vectors}",
        decoder=f"dynamic:{vectors}",
    ),
    st.integers(1, 4),
    st.integers(2, 9),
    st.integers(2, 9),
    st.integers(8, 24),
)


@settings(max_examples=4)
@given(
    sizes,
    st.sampled_from(("attention", "static:5", "static:2,3")),
    st.sampled_from(("attention", "dynamic:3")),
    factors,
)
def test_the_closed_roofline_of_a_captioner_is_below_that_of_its_kernels(
    drawn, encoder, decoder, faster
):
    B, L, T = drawn.batch, drawn.length, drawn.tokens
    model = Configuration(9, 4, encoder, decoder, "linear", "norm", 8 * drawn.d_model, 16)

    def make(case, implementation, device):
        captioner = Captioner(model).eval().implement("literal")
        features, words = torch.empty(B, L, 4), torch.zeros(B, T, dtype=torch.int64)
        return Work(torch.no_grad()(lambda: captioner(features, words)))

    kernels = dispatched(Case(Subject("one", "", (), ("it",), make=make), ("it",)), "it", cuda=True)
    device = replace(GPU, bandwidth=faster * GPU.bandwidth, launch=1e-30)
    ceilings = {"width": 4, "peak": device.peak["float32"], "bandwidth": device.bandwidth}
    parts = components(model, Length.of([L]), Length.of([T]), B)
    least = sum(seconds(B * part.macs, part.moved(B), **ceilings) for part in parts)
    assert 0 < least <= predict(kernels, device).seconds * (1 + SUMS)


def test_a_step_of_any_size_is_counted_without_memory():
    case = Case(SUBJECTS["static-layer forward"], ("literal",), Sizes(batch=10**6))
    small = replace(case, sizes=Sizes(batch=10))
    many, few = (predict(dispatched(c, "literal", cuda=True), GPU) for c in (case, small))
    assert many.bytes > 10e12
    assert many.launches == few.launches
    assert many.flops == 10**5 * few.flops


@settings(max_examples=4)
@given(st.integers(2, 9), st.integers(2, 9))
def test_views_and_allocations_are_no_kernels_and_bytes_are_read_once(n, m):
    x, y = torch.empty(n, m), torch.empty(m)
    with pytest.raises(ValueError, match="launches no operation"):
        launched(lambda x: (x.view(-1), x.t(), x[0], x.new_empty(3), x.detach()), x)
    (added,) = launched(lambda x, y: x + y, x, y)
    assert (added.flops, added.bytes) == (0, 4 * (2 * n * m + m))
    (spread,) = launched(lambda x, y: x + y.expand(n, m), x, y)
    assert spread.bytes == added.bytes
    (product,) = launched(lambda x, y: x @ y[:, None], x, y)
    assert (product.flops, product.bytes) == (2 * n * m, 4 * (n * m + m + n))
    (inside,) = launched(lambda x: x.mul_(2), x)
    assert inside.bytes == 8 * n * m
    (copied,) = launched(lambda x, z: x.copy_(z), x, torch.empty(n, m))
    assert copied.bytes == 8 * n * m
    (lists,) = launched(lambda x, z: torch._foreach_mul_([x, z], 2), x, torch.empty(n, m))
    assert lists.bytes == 16 * n * m
    ids = torch.empty(n, dtype=torch.int64)
    (taken,) = launched(lambda x, i: torch.nn.functional.embedding(i, x), torch.empty(999, m), ids)
    assert taken.bytes == 8 * n * m + 8 * n


@pytest.mark.parametrize("name", ["greedy", "beam", "self-critical step"])
def test_no_caption_ends_early(name):
    form = SUBJECTS.get(name, SELF_CRITICAL)

    def count(tokens, implementation):
        case = Case(form, (implementation,), replace(Sizes().tiny(), batch=1, tokens=tokens))
        # what only a first call makes is the same of any length
        return len(dispatched(case, implementation, cuda=True, warm_up=False))

    for implementation in ("literal",) if form is SELF_CRITICAL else ("prefix", "incremental"):
        two, three, four = (count(tokens, implementation) for tokens in (2, 3, 4))
        # each further token is the same work again, or nearly
        assert four > three
        assert abs((four - three) - (three - two)) < 0.2 * (four - three)


@pytest.mark.parametrize(
    ("name", "implementation", "why"),
    [
        ("static-layer forward", "literal+compile", "compiled"),
        ("ceilings", "device", "nothing is timed"),
        ("reward", "tensors", "depends on the data"),
    ],
)
def test_what_cannot_be_predicted_says_why(name, implementation, why):
    case = Case(SUBJECTS[name], (implementation,), Sizes().tiny())
    with pytest.raises(ValueError, match=why):
        dispatched(case, implementation, cuda=True)


def test_a_cpu_splits_a_batch_that_a_gpu_keeps_whole():
    case = Case(SUBJECTS["static-operator forward"], ("factored",), Sizes(batch=16))
    on_cpu, on_gpu = (dispatched(case, "factored", cuda=cuda) for cuda in (False, True))
    assert len(on_cpu) > len(on_gpu)
    assert sum(k.flops for k in on_cpu) == sum(k.flops for k in on_gpu)


def test_kernels_of_triton_are_fewer_and_move_less():
    case = Case(SUBJECTS["static-operator forward"], ("literal", "fused"), Sizes(batch=2))
    literal, fused = (predict(dispatched(case, n, cuda=True), GPU) for n in case.implementations)
    assert fused.launches < literal.launches
    assert fused.bytes < literal.bytes
