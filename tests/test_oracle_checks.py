"""The oracle's checks of arguments: what is refused, how, and what is let through."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.checks import requires


@requires(lambda a, b, limit: b <= limit, "b is {b}, expected at most {limit} for {a!r}")
def joined(a, b=1, *, limit=3):
    """A function with a default and a keyword."""
    return f"{a}{b}"


@given(st.text(), st.integers(-9, 9), st.integers(-9, 9))
def test_a_condition_sees_its_arguments_however_they_are_passed(a, b, limit):
    calls = [
        lambda: joined(a, b, limit=limit),
        lambda: joined(a, b=b, limit=limit),
        lambda: joined(b=b, limit=limit, a=a),
    ]
    for call in calls:
        if b <= limit:
            assert call() == f"{a}{b}"
        else:
            with pytest.raises(ValueError) as refused:
                call()
            assert str(refused.value) == f"b is {b}, expected at most {limit} for {a!r}"


def test_defaults_are_checked_and_names_and_docstrings_kept():
    assert joined("x") == "x1"
    with pytest.raises(ValueError, match="b is 1, expected at most 0"):
        joined("x", limit=0)
    assert (
        joined.__name__ == "joined" and joined.__doc__ == "A function with a default and a keyword."
    )
    with pytest.raises(TypeError, match="unexpected keyword"):
        joined("x", c=1)
