"""The inventory of equations: each has its formula, an oracle, a counterpart and a property."""

import ast
import importlib
import json
import re
from difflib import SequenceMatcher
from inspect import signature
from pathlib import Path
from xml.etree import ElementTree

import pytest
from latex2mathml.converter import convert

from benchmarks import equations
from benchmarks.cli.main import main
from benchmarks.errors import InputError
from reference.equations import PAPERS, Decision, Erratum, all_notes, equation, passage
from reference.equations import equations as registered
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


def test_every_equation_and_listing_has_an_oracle(entries):
    assert equations.summary(list(entries.values())) == (
        "68 of 68 numbered equations (58 computations, 10 definitions) and "
        "2 of 2 listings (2 computations, 0 definitions) have an oracle"
    )


@pytest.mark.parametrize("key", NUMBERED, ids=lambda key: f"{key[0]}-{key[1]}")
def test_every_equation_has_an_oracle_a_counterpart_and_a_property(key, entries):
    entry = entries[key]
    assert entry["oracle"], "no function of the oracle carries it"
    assert (entry["counterpart"] is None) == (key in equations.WITHOUT_COUNTERPART)
    assert entry["properties"], "no test carries @covers for it"


@pytest.mark.parametrize("key", NUMBERED, ids=lambda key: f"{key[0]}-{key[1]}")
def test_every_formula_is_latex_that_becomes_mathml(key, entries):
    """The converter passes unknown commands, stray ampersands and open braces on in silence."""
    assert entries[key]["formula"]
    for line in entries[key]["formula"]:
        text = re.sub(r"\\[{}]", "", line)
        assert text.count("{") == text.count("}"), line
        left, right = (len(re.findall(rf"\\{side}\b", line)) for side in ("left", "right"))
        assert left == right, line
        root = ElementTree.fromstring(convert(line, display="block"))
        assert not set("".join(root.itertext())) & set("\\&"), line
        operators = root.iter("{http://www.w3.org/1998/Math/MathML}mo")
        assert all((operator.text or "").strip() for operator in operators), line


def test_every_computation_has_an_operator_of_verify(entries):
    computations = {key for key, entry in entries.items() if entry["kind"] == "computation"}
    assert computations <= equations.operators().keys()


def test_a_definition_says_why_it_is_one(entries):
    for entry in entries.values():
        assert (entry["kind"] == "definition") == bool(entry["definition"])
    definitions = {key for key, entry in entries.items() if entry["definition"]}
    assert definitions == {
        ("expansionnet_v1", 4),
        ("expansionnet_v2", 9),
        ("expansionnet_v2", 10),
        ("arnet", 1),
        *(("lstm_readonly", number) for number in (1, 3, 12, 13, 14, 18)),
    }


def test_every_dotted_name_resolves_to_a_function_or_class():
    for name in (*(e.oracle for e in registered()), *equations.COUNTERPARTS.values()):
        assert callable(resolve(name)), name


def test_counterparts_are_of_equations_with_an_oracle_only():
    named = equations.COUNTERPARTS.keys() | equations.WITHOUT_COUNTERPART.keys()
    assert named <= {(e.paper, e.number) for e in registered()}
    assert not equations.COUNTERPARTS.keys() & equations.WITHOUT_COUNTERPART.keys()


def test_notes_stand_at_one_place_each_and_say_all_three_things():
    notes = all_notes()
    assert len(set(notes)) == len(notes)
    for paper, where, note in notes:
        assert paper in PAPERS and where
        assert type(note) in (Erratum, Decision)
        assert note.printed and note.taken and note.why, where


@pytest.mark.parametrize(
    ("paper", "where"),
    [
        ("expansionnet_v1", "(7), (8)"),
        ("expansionnet_v2", "(2)"),
        ("expansionnet_v2", "(5), dynamic biases"),
        ("lstm_readonly", "(10)"),
    ],
)
def test_what_the_print_says_already_is_a_decision(paper, where):
    (note,) = (note for p, w, note in all_notes() if (p, w) == (paper, where))
    assert isinstance(note, Decision)


def test_a_note_on_several_equations_names_them_all():
    """``forward_weights`` and ``forward_expansion`` share the misprinted name."""
    assert ("expansionnet_v2", "(3), (5), name") in {(p, where) for p, where, _ in all_notes()}


def test_the_decision_about_masking_stands_on_the_equations_whose_oracle_masks(entries):
    of_v2 = [entry for (paper, _), entry in entries.items() if paper == "expansionnet_v2"]
    masked = {e["number"] for e in of_v2 if "mask" in signature(resolve(e["oracle"])).parameters}
    noted = {e["number"] for e in of_v2 if "masking" in {note["about"] for note in e["notes"]}}
    assert masked == noted == {3, 6}


def test_errata_of_a_citation_stand_on_the_equation_that_it_means(entries):
    """The read-only paper cites (18) for the update, and (7) to (11) for what (6) defines too."""
    for number, about, defined in (
        (19, "text of II.D", r"\theta^{new} ="),
        (6, "text of II.A", "i_t ="),
    ):
        entry = entries["lstm_readonly", number]
        assert entry["formula"][0].startswith(defined)
        assert ("erratum", about) in {(note["kind"], note["about"]) for note in entry["notes"]}


def bodies(folder):
    """The tokens of each function's body without its docstring, torch's functions as NumPy's."""
    for path in sorted(Path(__file__).parents[1].joinpath(folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                code = [line for line in node.body if not isinstance(line, ast.Expr)]
                text = "\n".join(map(ast.unparse, code)).replace("torch.", "np.")
                if len(tokens := re.findall(r"\w+|[^\w\s]", text)) >= 25:
                    yield f"{path.name}:{node.name}", tokens


def test_no_function_of_the_oracle_is_a_copy_of_an_implementation():
    """A test that holds one to the other would compare a thing with itself."""
    oracles, matcher = list(bodies("reference")), SequenceMatcher(autojunk=False)
    for name, body in bodies("torch_impl"):
        matcher.set_seq2(body)
        for oracle, own in oracles:
            matcher.set_seq1(own)
            ratios = (matcher.real_quick_ratio, matcher.quick_ratio, matcher.ratio)
            alike = all(ratio() > 0.8 for ratio in ratios)
            assert not alike, f"{oracle} is {name} almost word for word"


def test_covers_and_equation_refuse_what_no_paper_has():
    with pytest.raises(ValueError, match="no equation 15"):
        covers(expansionnet_v2=[15])
    with pytest.raises(KeyError):
        covers(expansionnet_v3=[1])
    with pytest.raises(ValueError, match="unknown paper"):
        equation("expansionnet_v3", 1)
    with pytest.raises(ValueError, match="no equation 0"):
        equation("expansionnet_v1", 0)
    with pytest.raises(ValueError, match="unknown paper"):
        passage("expansionnet_v3", "4.2")


def test_an_equation_has_one_oracle():
    with pytest.raises(ValueError, match=r"arnet 2 is reference\.recurrent\.lstm already"):
        equation("arnet", 2)(lambda: None)


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


def test_the_command_prints_a_row_an_equation_and_how_many_compute(capsys):
    assert main(["equations"]) == 0
    printed = capsys.readouterr().out
    assert "68 of 68 numbered equations (58 computations, 10 definitions)" in printed
    assert "60 of 60 computations have an operator of captionbench verify" in printed
    assert "definition: the chain rule" in printed
    row = r"\(8\) +computation +erratum +reference\.expansion\.selection  =  torch_impl\.expansion"
    assert re.search(row, printed)
    assert r"out = \sigma(S) \odot B_1^{bw} + (1 - \sigma(S)) \odot B_2^{bw}" in printed
    assert "definition: (5) again, with the word as one-hot row" in printed


def test_the_command_as_json_is_a_list_of_entries(capsys):
    assert main(["equations", "--json", "expansionnet_v2"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [entry["number"] for entry in listed] == list(range(1, 15))
    for entry in listed:
        assert set(entry) == {
            *("paper", "number", "formula", "kind", "definition", "notes"),
            *("oracle", "counterpart", "properties", "operators"),
        }
        assert entry["operators"] or entry["definition"]
    (misprint,) = listed[10]["notes"]
    assert misprint["kind"] == "erratum"
    assert misprint["taken"] == "FF(Norm(E_n))"


def test_the_command_prints_the_errata(capsys):
    assert main(["equations", "--errata", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == len(all_notes())
    assert main(["equations", "arnet", "--errata"]) == 0
    printed = capsys.readouterr().out
    assert "arnet (11): erratum" in printed
    assert "arnet (7), (9), bounds: decision" in printed
    assert "2 errata and 5 decisions" in printed
    assert "expansionnet" not in printed


def test_an_unknown_paper_is_bad_input(capsys):
    assert main(["equations", "nonsense"]) == 2
    assert "unknown paper 'nonsense', expected one of expansionnet_v1" in capsys.readouterr().err
