"""The planted faults: each can be planted, and a caught one is told from a missed one."""

import ast
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from reference import primitives
from tests.faults.__main__ import main
from tests.faults.catalogue import DECODING, EXPANSION, FAULTS, METRICS, TRAINING, TRANSFORMER
from tests.faults.plant import Fault, planted, target, wrong_code

TESTS = Path(__file__).parent


def test_there_are_many_faults_of_every_idea_each_with_its_own_name():
    assert len(FAULTS) >= 20
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    assert all((EXPANSION, TRANSFORMER, DECODING, TRAINING, METRICS))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_changes_its_function_and_its_test_exists(fault):
    assert wrong_code(fault) != target(fault).__code__
    file, _, name = fault.test.partition("[")[0].partition("::")
    defined = ast.parse((TESTS / file).read_text(encoding="utf-8")).body
    assert name in {node.name for node in defined if isinstance(node, ast.FunctionDef)}


def test_a_planted_fault_reaches_every_importer_and_goes_again():
    fault = Fault("no maximum", "", "reference.primitives:relu", "np.maximum(x, 0)", "x", "")
    imported = primitives.relu
    with pytest.raises(ZeroDivisionError), planted(fault):
        assert imported(np.array([-1.0]))[0] == -1
        raise ZeroDivisionError
    assert primitives.relu(np.array([-1.0]))[0] == 0


def test_a_place_that_is_not_in_the_source_is_named():
    fault = Fault("gone", "", "reference.primitives:relu", "np.minimum", "np.maximum", "")
    with pytest.raises(ValueError, match=r"gone: .*relu has 'np.minimum' 0 times"), planted(fault):
        pass


CODE = """
import sys
from tests.faults.__main__ import main, verdict
from tests.faults.plant import Fault

code = main(["factored: no mean over groups", "oracle: layer norm's variance", "padding counted"])
test = "test_primitives.py::test_layer_norm_is_torchs"
place = "reference.primitives:layer_norm", "X - X.mean", "(X) - X.mean"
print(verdict(Fault("harmless", "", *place, test)))
print(verdict(Fault("untested", "", *place, "test_primitives.py::test_nothing")))
sys.exit(code)
"""


def test_a_fault_of_each_side_is_caught_and_a_change_that_is_none_is_not():
    result = subprocess.run(
        [sys.executable, "-c", CODE], cwd=TESTS.parent, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "without faults all 3 tests pass" in result.stdout
    assert result.stdout.endswith("3 of 3 faults caught\nnot caught\nno such test\n")


def test_an_unknown_fault_is_bad_input_and_all_are_listed(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["nonsense"])
    assert "no such fault: nonsense" in capsys.readouterr().err
    assert main(["--list"]) == 0
    assert capsys.readouterr().out.count("\n") == 3 * len(FAULTS)
