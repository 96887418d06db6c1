"""Digits as sequences: every pixel once, in one order; files that are none are refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from benchmarks.data import digits
from benchmarks.errors import InputError

sides = st.integers(1, 4).map(lambda half: 2 * half)


@st.composite
def some_digits(draw):
    n, side = draw(st.integers(1, 5)), draw(sides)
    images = draw(arrays.arrays(np.uint8, (n, side, side)))
    return digits.Digits(images, draw(arrays.arrays(np.int64, n, elements=st.integers(0, 9))))


@given(some_digits(), st.integers(0, 2**32 - 1))
def test_a_sequence_holds_every_pixel_once_in_the_same_order_for_all(some, seed):
    order = digits.permutation(some.images[0].size, seed)
    assert sorted(order) == list(range(len(order)))
    assert np.array_equal(order, digits.permutation(len(order), seed))
    sequences = some.sequences(order)
    assert sequences.shape == (len(some), len(order), 1)
    back = np.empty_like(sequences)
    back[:, order] = sequences
    assert np.array_equal((back * 255).round().reshape(some.images.shape), some.images)


@given(some_digits())
def test_halving_keeps_the_brightness(some):
    small = some.halved()
    assert small.images.shape[1] * 2 == some.images.shape[1]
    assert abs(small.images.mean(dtype=float) - some.images.mean(dtype=float)) <= 0.5
    assert np.array_equal(small.labels, some.labels)


def save(path, **changes):
    parts = {
        "x_train": np.zeros((3, 4, 4), np.uint8),
        "y_train": np.arange(3),
        "x_test": np.zeros((2, 4, 4), np.uint8),
        "y_test": np.arange(2),
    }
    np.savez(path, **{k: v for k, v in (parts | changes).items() if v is not None})
    return path


def test_what_was_saved_is_loaded(tmp_path):
    images = np.random.default_rng(0).integers(0, 255, (3, 4, 4), np.uint8)
    found = digits.load(save(tmp_path / "mnist.npz", x_train=images))
    assert np.array_equal(found.splits["train"].images, images)
    assert len(found.splits["test"]) == 2 and len(found.splits["train"].first(2)) == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x_test": None}, "cannot be read"),
        ({"x_test": np.zeros((2, 4, 4))}, "x_test is float64"),
        ({"x_train": np.zeros((3, 4, 5), np.uint8)}, "x_train is uint8"),
        ({"y_test": np.array([1, 10])}, "y_test does not label"),
        ({"y_test": np.array([1])}, "y_test does not label"),
    ],
)
def test_what_is_no_such_file_is_named(changes, message, tmp_path):
    with pytest.raises(InputError, match=rf"mnist.npz: {message}.*expected MNIST"):
        digits.load(save(tmp_path / "mnist.npz", **changes))


def test_what_unpacks_to_too_much_is_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(digits, "MOST_BYTES", 100)
    with pytest.raises(InputError, match=r"mnist\.npz: over 100 bytes unpacked"):
        digits.load(save(tmp_path / "mnist.npz"))


def test_damaged_files_are_named(tmp_path):
    path = save(tmp_path / "mnist.npz")
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(InputError, match="cannot be read"):
        digits.load(path)
    with pytest.raises(InputError, match="no such file"):
        digits.load(tmp_path / "other.npz")
