"""Results of candidates as data: any two are compared, and there is an end to them."""

from collections import OrderedDict, defaultdict
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.verify import wire
from benchmarks.verify.candidate import LIMITS, Candidate, CandidateError
from benchmarks.verify.conversion import to_numpy
from benchmarks.verify.detection import ACCEPTED, alike
from benchmarks.verify.draw import Draw
from benchmarks.verify.earlier import are_in_memory, share_memory
from benchmarks.verify.frameworks import NotAnArrayError, NumPy, Torch
from benchmarks.verify.operators import OPERATORS
from tests.support.strangers import verdicts

NUMBERS = st.integers(-3, 3) | st.floats(-3, 3) | st.just(float("nan"))
ARRAYS = st.lists(NUMBERS, max_size=3).map(lambda x: np.array(x, np.float64))
RESULTS = st.recursive(
    st.none() | st.booleans() | st.text(max_size=2) | NUMBERS | ARRAYS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab"), inner, max_size=2),
    max_leaves=8,
)


DTYPES = "float64", "float32", "float16", "bfloat16", "int64", "int32", "uint8", "bool"


@given(
    st.sampled_from(DTYPES),
    st.lists(st.integers(0, 4), max_size=3),
    st.sampled_from(["plain", "reversed", "every second", "expanded", "a gradient", "negated"]),
    st.integers(0, 99),
)
def test_a_tensor_is_read_as_pytorch_reads_it(dtype, shape, how, seed):
    """Also where it lies, by no operator: of any type and strides."""
    numbers = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) * 9
    x = numbers.to(getattr(torch, dtype))
    if how == "reversed":
        x = x.permute(*reversed(range(x.ndim)))
    elif how == "every second" and x.ndim:
        x = x[..., 1::2]
    elif how == "expanded":
        x = x.expand(3, *x.shape)
    elif how == "a gradient" and x.is_floating_point():
        x = x.requires_grad_() * 2
    elif how == "negated" and dtype in ("float64", "float32"):
        x = torch.complex(torch.zeros_like(x), x).conj().imag
    expected = x.detach().resolve_neg()
    expected = (expected.float() if x.element_size() == 2 else expected).numpy()
    for found in (Torch().to_numpy(x), to_numpy(NumPy(), x), Torch().in_place(x)):
        if dtype not in ("bfloat16", "float16") or found.dtype == np.float32:
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)
        assert found.shape == expected.shape


INDEX = st.builds(slice, st.none() | st.integers(0, 5), st.none() | st.integers(0, 9)) | st.builds(
    slice, st.none(), st.none(), st.sampled_from([-2, -1, 2, 3])
)


@given(
    *[st.lists(st.tuples(st.integers(0, 1), INDEX, INDEX), max_size=3)] * 2,
)
def test_results_share_memory_if_two_of_their_arrays_do(one, other):
    """By the bounds of each, as NumPy says; of PyTorch's, by their storages."""
    arrays = [np.zeros((5, 9)), np.zeros((5, 9), np.float32)]
    results = [[arrays[i][rows, columns] for i, rows, columns in of] for of in (one, other)]
    expected = any(np.may_share_memory(x, y) for x in results[0] for y in results[1])
    assert share_memory(NumPy(), *results) == expected
    tensors = [*map(torch.from_numpy, arrays)]
    results = [
        [tensors[i][: rows.start, : columns.stop] for i, rows, columns in of] for of in (one, other)
    ]
    expected = any(i == j for i, *_ in one for j, *_ in other)
    assert share_memory(Torch(), *results) == expected


def test_a_result_of_many_arrays_is_compared_in_little_time():
    """Each with each would take minutes."""
    rows = [*np.zeros((20_000, 2))]
    assert not share_memory(NumPy(), rows, [*np.zeros((20_000, 2))])
    assert [*are_in_memory(NumPy(), rows, rows[:-1])] == [True] * 19_999 + [False]


class Pair(NamedTuple):
    one: np.ndarray
    other: np.ndarray


class Doubled(dict):
    def __getitem__(self, key):
        return 2 * super().__getitem__(key)


class Reversed(tuple):
    def __iter__(self):
        return reversed([*super().__iter__()])


class Number(np.float64):
    pass


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Pair(np.ones(2), np.zeros(1)), [[1, 1], [0]]),
        (torch.ones(2, 3).cumsum(1).max(1), [[3, 3], [2, 2]]),
        (OrderedDict(b=np.ones(2), a=1.0), {"b": [1, 1], "a": 1}),
        (defaultdict(list, a=(1, [2.0])), {"a": [1, [2]]}),
        (np.float32(2), 2),
        ([np.array(2), torch.ones(1)], [2, [1]]),
    ],
)
def test_results_of_python_s_own_kinds_are_read_as_they_are(value, expected):
    """Named tuples, PyTorch's and Python's, and ordered mappings among them."""

    def as_lists(read):
        if isinstance(read, dict):
            return {key: as_lists(item) for key, item in read.items()}
        return (
            [*map(as_lists, read)] if isinstance(read, (list, tuple)) else np.array(read).tolist()
        )

    read = as_lists(to_numpy(NumPy(), value))
    assert read == expected
    assert not isinstance(expected, dict) or [*read] == [*expected]


@pytest.mark.parametrize(
    "value", [Doubled(a=np.ones(1)), Reversed((1, 2)), Number(1), {1: 2.0}], ids=repr
)
def test_results_of_a_kind_of_their_own_are_refused(value):
    """What their own methods give may be something else than what they hold."""
    with pytest.raises(NotAnArrayError):
        to_numpy(NumPy(), value)


def as_sent(value):
    return wire.load(wire.dump(value))


@given(RESULTS, RESULTS)
def test_any_two_results_are_compared(one, other):
    assert alike(one, as_sent(one))
    assert alike(one, other) == alike(other, one)


@given(st.lists(NUMBERS, min_size=1, max_size=40), st.data())
def test_one_number_of_a_list_that_is_another_is_seen(numbers, data):
    i = data.draw(st.integers(0, len(numbers) - 1))
    other = [*numbers[:i], 7.0, *numbers[i + 1 :]]
    assert not alike(numbers, other)
    assert not alike([numbers, "a"], [other, "a"])


@given(st.integers(0, 40), st.booleans())
def test_lists_within_each_other_have_an_end(depth, of_mappings):
    value = 0.5
    for _ in range(depth):
        value = {"a": value} if of_mappings else [value]
    assert wire.is_large(value) == (depth > wire.DEEPEST)


def test_so_have_their_items():
    most = [0.0] * wire.MOST
    assert not wire.is_large(most)
    assert wire.is_large([*most, 0.0])
    assert wire.is_large([most])


def test_a_result_without_an_end_is_a_finding(tmp_path):
    text = (
        "import sys; sys.setrecursionlimit(10_000)\n"
        "deep = [0.0]\nfor _ in range(900): deep = [deep]\n"
        "def f(candidates, references): return deep\n"
    )
    found = verdicts(tmp_path, "rouge_l", text, only=["equals_oracle"], framework="numpy")
    said = "returned lists of more than 4194304 items, or more than 16 within each other"
    assert found["equals_oracle"].message == said


def test_a_list_without_an_end_is_not_converted():
    with pytest.raises(NotAnArrayError, match=f"a list of {wire.MOST + 1} items"):
        to_numpy(NumPy(), [0.0] * (wire.MOST + 1))


class Liar(list):
    """Equal to all."""

    def __eq__(self, other):
        return True

    __hash__ = None


def test_no_argument_of_any_kind_may_be_changed():
    def of_list(candidates, references):
        candidates[0] = Liar(["changed"])

    def of_model(next_log_probs, *_):
        next_log_probs.table[...] = -7.0

    for name, change in (("rouge_l", of_list), ("greedy", of_model)):
        operator = OPERATORS[name]
        right = operator.oracle

        def function(*case, change=change, right=right):
            found = right(*case)
            change(*case)
            return found

        candidate = Candidate(function, arguments=operator.arguments)
        with pytest.raises(CandidateError, match="changed its argument 1 in place"):
            candidate(*operator.case(Draw(0)))


def test_what_a_candidate_raises_is_no_kind_of_ours():
    for name in (*LIMITS, *ACCEPTED):

        def raising(x, name=name):
            raise type(name, (Exception,), {})

        try:
            Candidate(raising)(0)
        except CandidateError as error:
            assert error.kind not in (*LIMITS, *ACCEPTED)
        else:
            raise AssertionError(name)


def test_a_message_is_for_a_reader(tmp_path):
    text = "def f(*_): return list(range(10**5))\n"
    found = verdicts(tmp_path, "scheduled_sampling", text, only=["equals_oracle"])
    assert len(found["equals_oracle"].message) < 3000


@pytest.mark.parametrize("is_on_a_cpu", [True, False])
def test_what_is_refilled_has_other_numbers_and_another_version(is_on_a_cpu, monkeypatch):
    framework = Torch()
    if not is_on_a_cpu:  # there is no memory to write to without an operator
        monkeypatch.setattr(framework.torch, "in_memory", lambda tensor: None)
    with torch.inference_mode():
        inferred = torch.zeros(3)
    parameter, plain = torch.nn.Parameter(torch.zeros(3)), torch.zeros(3)
    for tensor in (parameter, plain, inferred):
        framework.refill(tensor, np.float32([1, 2, 3]))
        assert tensor.tolist() == [1, 2, 3]
    assert parameter._version == plain._version == 1
    parameter.sum().backward()
    assert parameter.grad.tolist() == [1, 1, 1]
