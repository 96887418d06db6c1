"""The conformance kit's specifications on every implementation of ours."""

import importlib.util
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest

from benchmarks.verify import search, table
from benchmarks.verify.conformance import FAILED, NOT_RUN
from benchmarks.verify.detection import alike, alone
from benchmarks.verify.draw import STARTING, Draw
from benchmarks.verify.operators import OPERATORS
from benchmarks.verify.process import HASH_SEEDS
from benchmarks.verify.project import EXPANSIONS, implementations, of_form
from tests.support.covers import covers


def interpreted_kernels():
    """The fused expansions on Triton's interpreter with small tiles, and with those of a GPU, each
    of which holds a small case; none without Triton.
    """
    if importlib.util.find_spec("triton") is None:
        return
    for name in EXPANSIONS:
        fused = replace(of_form(name, "fused"), share=5)
        yield fused.with_small_tiles()
        yield fused.interpreted()


OURS = {
    f"{ours.operator}-{ours.implementation.replace(', ', '-')}": ours
    for ours in (*implementations(), *interpreted_kernels())
}
EXAMPLES, OF_THE_OTHERS = 3, 30
"""Of what has no gradient, such as searches and schedules, more: ties that matter are seldom."""

REAL_SIZES = "large", "large_batch", "gradient", "padded_gradient"
"""The properties that have most of the large sizes: tested in all, as a candidate is."""

OF_TILES = {*REAL_SIZES, "equals_oracle", "bfloat16", "causality", "padded_batch", "holes"} | {
    "holes_gradient",
    "empty_sequence",
}
"""Those in which interpreted kernels have small tiles: the others are of what surrounds them."""

OF_NUMPY = {
    "NumPy has no gradients (see --framework)",
    "numpy candidates are tested in float64 and float32",
}
WITHOUT_HOLES = {
    "lstm-library": "PyTorch's LSTM takes lengths",
    "reconstruction_loss-torch": "the state before is the row before",
}
"""Of those with padding, why they take no masks."""


def may_skip(name, reason):
    """Whether an implementation of ours may leave out a property for this reason."""
    if reason == "it has no argument named mask":
        return name in WITHOUT_HOLES
    return reason in OF_NUMPY and OURS[name].framework == "numpy"


def failures(name):
    """What fails or is left out of an implementation, called in this process; one at a time."""
    ours = OURS[name]
    few = EXAMPLES if OPERATORS[ours.operator].by else OF_THE_OTHERS
    many = few if ours.is_of_small_cases else search.MANY
    names = [prop.name for prop in OPERATORS[ours.operator].properties]
    if name.endswith("fused-parts"):
        names = [each for each in names if each in OF_TILES]
    real = [each for each in names if each in REAL_SIZES]
    parts = (many, real), (few, [each for each in names if each not in real])
    found = (table.verdicts(ours, table.called_here(ours), n, only=only) for n, only in parts)
    for verdict in chain.from_iterable(found):
        if verdict.status == FAILED:
            yield f"{verdict.name}: {verdict.message}\n\n{verdict.code}"
        if verdict.status == NOT_RUN and not may_skip(name, verdict.message):
            yield f"{verdict.name} was not run: {verdict.message}"


@covers(
    expansionnet_v1=[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
    expansionnet_v2=[1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14],
    arnet=[2, 3, 4, 5, 6, 7, 9, 10, 11, 12],
    lstm_readonly=[3, 4, 6, 7, 8, 9, 10, 11, 16, 17],
    middle_out=[1, 2, 3, 4, 5, 6, 7],
)
@pytest.mark.parametrize("name", OURS)
def test_an_implementation_of_ours_is_its_operator(name):
    assert next(failures(name), None) is None


def write_first_results(path):
    """The result of every implementation of ours on one case, by its name."""
    results = {}
    for name, ours in OURS.items():
        operator = OPERATORS[ours.operator]
        call = alone(table.called_here(ours), operator)
        results[name] = call(*operator.case(Draw(STARTING)))
    Path(path).write_bytes(pickle.dumps(results))


def test_ours_do_not_depend_on_the_order_of_sets(tmp_path):
    """As of a candidate, two processes must give the same."""
    code = f"from {__name__} import write_first_results as write; import sys; write(sys.argv[1])"
    found = []
    for seed in HASH_SEEDS:
        of = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": str(seed)}
        path = tmp_path / str(seed)
        subprocess.run([sys.executable, "-c", code, str(path)], env=of, check=True)
        found.append(pickle.loads(path.read_bytes()))
    one, other = found
    assert [name for name in OURS if not alike(one[name], other[name])] == []
