"""The conformance kit's specifications on every implementation of ours."""

import importlib.util
from dataclasses import replace

import pytest

from benchmarks.verify import shrink, table
from benchmarks.verify.conformance import FAILED
from benchmarks.verify.project import EXPANSIONS, implementations, of_form
from tests.support.covers import covers


def interpreted_kernels():
    """The fused expansions on Triton's interpreter with small tiles; none without Triton."""
    if importlib.util.find_spec("triton") is None:
        return []
    return [replace(of_form(name, "fused"), share=5).with_small_tiles() for name in EXPANSIONS]


OURS = {
    f"{ours.operator}-{ours.implementation.replace(', ', '-')}": ours
    for ours in (*implementations(), *interpreted_kernels())
}
EXAMPLES, OF_SEARCHES = 3, 30
"""Of a search more, since ties that matter are seldom."""


def failures(ours):
    """What fails of an implementation, called in this process, with the case; one at a time."""
    examples = OF_SEARCHES if ours.operator.endswith("search") else EXAMPLES
    for verdict in table.verdicts(ours, table.called_here(ours), examples):
        if verdict.status == FAILED:
            yield f"{verdict.name}: {verdict.message}\n\n{verdict.code}"


@covers(
    expansionnet_v1=[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12],
    expansionnet_v2=[1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12],
    arnet=[2, 3, 4, 5, 6, 7, 9, 10, 11, 12],
    lstm_readonly=[3, 4, 6, 7, 8, 9, 10, 11, 16, 17],
    middle_out=[1, 2, 3, 4, 5, 6, 7],
)
@pytest.mark.parametrize("name", OURS)
def test_an_implementation_of_ours_is_its_operator(name, monkeypatch):
    monkeypatch.setattr(shrink, "SECONDS", 1.0)
    assert next(failures(OURS[name]), None) is None
