"""The inventory of equations: each has an oracle, a counterpart and a property."""

import importlib
import json

import pytest

from benchmarks import equations
from benchmarks.cli.main import main
from benchmarks.errors import InputError
from reference.equations import PAPERS, equation, oracles
from reference.errata import ERRATA
from tests.support.covers import covers

NUMBERED = [(paper, number) for paper, about in PAPERS.items() for number in about.numbers]


def resolve(name):
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def test_the_inventory_is_68_equations_and_two_listings():
    assert sum(paper.equations for paper in PAPERS.values()) == 68
    assert sum(len(paper.listings) for paper in PAPERS.values()) == 2
    assert len(equations.entries()) == 70


@pytest.fixture(scope="module")
def entries():
    return {(entry["paper"], entry["number"]): entry for entry in equations.entries()}


def test_every_equation_and_listing_is_oracled(entries):
    assert equations.summary(list(entries.values())) == (
        "68 of 68 numbered equations and 2 of 2 listings covered"
    )


@pytest.mark.parametrize("key", NUMBERED, ids=lambda key: f"{key[0]}-{key[1]}")
def test_every_equation_has_an_oracle_a_counterpart_and_a_property(key, entries):
    entry = entries[key]
    assert entry["oracle"], "no function of the oracle carries it"
    assert (entry["counterpart"] is None) == (key in equations.WITHOUT_COUNTERPART)
    assert entry["properties"], "no test carries @covers for it"


def test_every_dotted_name_resolves_to_a_function_or_class():
    names = [name for functions in oracles().values() for name in functions]
    for name in (*names, *equations.COUNTERPARTS.values()):
        assert callable(resolve(name)), name


def test_counterparts_are_of_oracled_equations_only():
    named = equations.COUNTERPARTS.keys() | equations.WITHOUT_COUNTERPART.keys()
    assert named <= oracles().keys()
    assert not equations.COUNTERPARTS.keys() & equations.WITHOUT_COUNTERPART.keys()


def test_every_erratum_is_of_a_known_paper():
    assert {erratum.paper for erratum in ERRATA} <= PAPERS.keys()


def test_covers_and_equation_refuse_what_no_paper_has():
    with pytest.raises(ValueError, match="no equation 15"):
        covers(expansionnet_v2=[15])
    with pytest.raises(KeyError):
        covers(expansionnet_v3=[1])
    with pytest.raises(ValueError, match="unknown paper"):
        equation("expansionnet_v3", 1)
    with pytest.raises(ValueError, match="no equation 0"):
        equation("expansionnet_v1", 0)


def test_properties_are_read_from_the_source(tmp_path):
    (tmp_path / "test_a.py").write_text(
        "@covers(expansionnet_v2=[4, 5])\ndef test_f(): pass\n"
        "class TestC:\n    @covers(lstm_readonly=['beam search'])\n    def test_g(self): pass\n"
    )
    assert equations.properties(tmp_path) == {
        ("expansionnet_v2", 4): ["test_a.py::test_f"],
        ("expansionnet_v2", 5): ["test_a.py::test_f"],
        ("lstm_readonly", "beam search"): ["test_a.py::TestC::test_g"],
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("expansionnet_v2=[15]", "knows no expansionnet_v2 15"),
        ("expansionnet_v3=[1]", "knows no expansionnet_v3 1"),
        ("expansionnet_v2=NUMBERS", "must be literals"),
    ],
)
def test_a_decorator_with_unknown_arguments_is_an_error(tmp_path, arguments, message):
    (tmp_path / "test_a.py").write_text(f"@covers({arguments})\ndef test_f(): pass\n")
    with pytest.raises(InputError, match=message):
        equations.properties(tmp_path)


def test_the_command_prints_what_is_covered_and_what_is_not_yet(capsys):
    assert main(["equations"]) == 0
    printed = capsys.readouterr().out
    covered = [key for key, names in oracles().items() if names]
    numbered = sum(isinstance(number, int) for _, number in covered)
    assert f"{numbered} of 68 numbered equations" in printed
    assert f"{len(covered) - numbered} of 2 listings covered" in printed
    assert "reference.expansion.selection  =  torch_impl.expansion" in printed


def test_the_command_as_json_is_a_list_of_entries(capsys):
    assert main(["equations", "--json", "--paper", "expansionnet_v2"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [entry["number"] for entry in listed] == list(range(1, 15))
    for entry in listed:
        assert set(entry) == {"paper", "number", "oracle", "counterpart", "properties"}


def test_the_command_prints_the_errata(capsys):
    assert main(["equations", "--errata", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == len(ERRATA)
    assert main(["equations", "--errata", "--paper", "arnet"]) == 0
    printed = capsys.readouterr().out
    assert "arnet (8)" in printed
    assert "expansionnet" not in printed


def test_an_unknown_paper_is_bad_input(capsys):
    assert main(["equations", "--paper", "nonsense"]) == 2
    assert "--paper nonsense: expected one of expansionnet_v1" in capsys.readouterr().err
