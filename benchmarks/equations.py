"""Every equation of the papers: its oracle, its PyTorch counterpart, and the tests of both."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.errors import InputError
from benchmarks.verify.operators import OPERATORS
from reference.equations import PAPERS, Number, all_notes, equations

Key = tuple[str, Number]

TESTS = Path(__file__).parents[1] / "tests"

COUNTERPARTS: dict[Key, str] = {
    ("expansionnet_v1", 1): "torch_impl.layers.attention.multi_head",
    ("expansionnet_v1", 2): "torch_impl.layers.attention.MultiHeadAttention",
    ("expansionnet_v1", 3): "torch_impl.expansion.broad_sum",
    ("expansionnet_v1", 4): "torch_impl.expansion.StaticExpansion",
    ("expansionnet_v1", 5): "torch_impl.expansion.normalise",
    ("expansionnet_v1", 6): "torch_impl.expansion.length_transformation",
    ("expansionnet_v1", 7): "torch_impl.expansion.static_expansion",
    ("expansionnet_v1", 8): "torch_impl.expansion.static_expansion",
    ("expansionnet_v1", 9): "torch_impl.expansion.static_expansion",
    ("expansionnet_v1", 10): "torch_impl.layers.transformer.EncoderLayer",
    ("expansionnet_v1", 11): "torch_impl.layers.transformer.DecoderLayer",
    ("expansionnet_v1", 12): "torch_impl.models.Captioner",
    ("expansionnet_v1", 13): "torch_impl.training.objectives.cross_entropy",
    ("expansionnet_v1", 14): "torch_impl.training.objectives.self_critical",
    ("expansionnet_v1", 15): "torch_impl.training.objectives.baselines",
    ("expansionnet_v2", 1): "torch_impl.expansion.broad_sum",
    ("expansionnet_v2", 2): "torch_impl.expansion.length_transformation",
    ("expansionnet_v2", 3): "torch_impl.expansion.dynamic_expansion",
    ("expansionnet_v2", 4): "torch_impl.expansion.normalise",
    ("expansionnet_v2", 5): "torch_impl.expansion.dynamic_expansion",
    ("expansionnet_v2", 6): "torch_impl.expansion.static_expansion",
    ("expansionnet_v2", 7): "torch_impl.expansion.dynamic_expansion",
    ("expansionnet_v2", 8): "torch_impl.expansion.dynamic_expansion",
    ("expansionnet_v2", 9): "torch_impl.expansion.StaticExpansion",
    ("expansionnet_v2", 10): "torch_impl.layers.swin.SwinTransformer",
    ("expansionnet_v2", 11): "torch_impl.layers.transformer.EncoderLayer",
    ("expansionnet_v2", 12): "torch_impl.layers.transformer.DecoderLayer",
    ("expansionnet_v2", 13): "torch_impl.training.objectives.cross_entropy",
    ("expansionnet_v2", 14): "torch_impl.training.objectives.self_critical",
    ("arnet", 1): "torch_impl.recurrent.LSTM",
    ("arnet", 2): "torch_impl.recurrent.cell.cell",
    ("arnet", 3): "torch_impl.recurrent.AttentiveLSTM",
    ("arnet", 4): "torch_impl.recurrent.SoftAttention",
    ("arnet", 5): "torch_impl.recurrent.auto_reconstructor.AutoReconstructor",
    ("arnet", 6): "torch_impl.recurrent.auto_reconstructor.AutoReconstructor",
    ("arnet", 7): "torch_impl.recurrent.auto_reconstructor.AutoReconstructor",
    ("arnet", 8): "torch_impl.training.objectives.cross_entropy",
    ("arnet", 9): "torch_impl.recurrent.auto_reconstructor.joint_loss",
    ("arnet", 10): "torch_impl.recurrent.auto_reconstructor.cosine_distance",
    ("arnet", 11): "torch_impl.recurrent.auto_reconstructor.mean_centroid_distance",
    ("arnet", 12): "torch_impl.recurrent.auto_reconstructor.point_wise_distance",
    ("lstm_readonly", 2): "torch_impl.decoding.teacher_forced",
    ("lstm_readonly", 3): "torch_impl.recurrent.LSTM",
    ("lstm_readonly", 4): "torch_impl.models.RecurrentCaptioner",
    ("lstm_readonly", 5): "torch_impl.models.RecurrentCaptioner",
    ("lstm_readonly", 6): "torch_impl.recurrent.cell.cell",
    ("lstm_readonly", 7): "torch_impl.recurrent.cell.cell",
    ("lstm_readonly", 8): "torch_impl.recurrent.cell.cell",
    ("lstm_readonly", 9): "torch_impl.recurrent.cell.cell",
    ("lstm_readonly", 10): "torch_impl.recurrent.cell.cell",
    ("lstm_readonly", 11): "torch_impl.models.RecurrentCaptioner",
    ("lstm_readonly", 13): "torch_impl.models.RecurrentCaptioner",
    ("lstm_readonly", 14): "torch_impl.models.RecurrentCaptioner",
    ("lstm_readonly", 15): "torch_impl.training.objectives.cross_entropy",
    ("lstm_readonly", 16): "torch_impl.recurrent.cell.cell",
    ("lstm_readonly", 17): "torch_impl.recurrent.cell.cell",
    ("lstm_readonly", "gradient clipping"): "torch_impl.training.optimisation.clip_gradients",
    ("middle_out", 1): "torch_impl.middle_out.step",
    ("middle_out", 2): "torch_impl.middle_out.attend",
    ("middle_out", 3): "torch_impl.middle_out.attend",
    ("middle_out", 4): "torch_impl.middle_out.attend",
    ("middle_out", 5): "torch_impl.middle_out.step",
    ("middle_out", 6): "torch_impl.middle_out.step",
    ("middle_out", 7): "torch_impl.middle_out.run",
    ("middle_out", 8): "torch_impl.models.denoising.symmetric",
}
"""The PyTorch implementation of each equation, by dotted name."""

WITHOUT_COUNTERPART: dict[Key, str] = {
    ("lstm_readonly", 1): "what training by gradient descent is for, not a computation",
    ("lstm_readonly", 12): "no Inception here: any network may give the features",
    ("lstm_readonly", 18): "PyTorch's own: autograd",
    ("lstm_readonly", 19): "PyTorch's own: torch.optim.SGD",
    ("lstm_readonly", "beam search"): "torch_impl.decoding.beam_search, in which those that ended "
    "compete, decodes every model",
}
"""Why an equation has no counterpart."""


def operators() -> dict[Key, list[str]]:
    """For each equation, the operators of ``captionbench verify`` that compute it."""
    found: dict[Key, list[str]] = defaultdict(list)
    for operator in OPERATORS.values():
        for paper, numbers in operator.equations.items():
            for number in numbers:
                found[paper, number].append(operator.name)
    return dict(found)


@cache
def properties(tests: Path = TESTS) -> dict[Key, list[str]]:
    """For each equation, the tests that ``@covers`` it, as ``test_file.py::test_name``.

    Raises:
        InputError: a decorator names an unknown paper or equation, or its arguments are not
            literals.
    """
    found: dict[Key, list[str]] = defaultdict(list)
    for path in sorted(tests.glob("test_*.py")):
        for node, name in _tests(ast.parse(path.read_text(encoding="utf-8"), str(path))):
            for key in _covered(node, f"{path.name}::{name}"):
                found[key].append(f"{path.name}::{name}")
    return dict(found)


def _tests(module: ast.Module) -> list[tuple[ast.FunctionDef, str]]:
    """The functions of a test file with their names; methods are ``Class::function``."""
    found = [(node, node.name) for node in module.body if isinstance(node, ast.FunctionDef)]
    for group in module.body:
        if isinstance(group, ast.ClassDef):
            methods = [node for node in group.body if isinstance(node, ast.FunctionDef)]
            found += [(node, f"{group.name}::{node.name}") for node in methods]
    return found


def _covered(test: ast.FunctionDef, where: str) -> list[Key]:
    keys: list[Key] = []
    for decorator in test.decorator_list:
        if not (isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "covers"):
            continue
        for keyword in decorator.keywords:
            try:
                numbers = ast.literal_eval(keyword.value)
            except ValueError:
                raise InputError(f"{where}: the arguments of @covers must be literals") from None
            paper = PAPERS.get(keyword.arg or "")
            for number in numbers:
                if paper is None or number not in paper.numbers:
                    raise InputError(f"{where}: @covers knows no {keyword.arg} {number!r}")
                keys.append((keyword.arg or "", number))
    return keys


def entries() -> list[dict[str, Any]]:
    """One JSON object for each equation.

    ``paper`` and ``number``; ``formula``, the printed lines in LaTeX; ``kind``, "computation" or
    "definition"; ``definition``, why it is a definition, or None; ``notes``, errata and decisions;
    ``oracle`` and ``counterpart``, dotted names or None; ``properties``, names of tests.
    """
    known, tests = {(e.paper, e.number): e for e in equations()}, properties()
    found: list[dict[str, Any]] = []
    for key in ((paper, number) for paper, about in PAPERS.items() for number in about.numbers):
        entry: dict[str, Any] = dict(zip(("paper", "number"), key, strict=True))
        if key in known:
            equation = known[key]
            entry |= {
                "formula": list(equation.formula),
                "kind": equation.kind,
                "definition": equation.definition,
                "notes": [{"kind": note.kind, **vars(note)} for note in equation.notes],
                "oracle": equation.oracle,
            }
        else:
            entry |= {"formula": [], "kind": None, "definition": None, "notes": [], "oracle": None}
        found.append(
            entry | {"counterpart": COUNTERPARTS.get(key), "properties": tests.get(key, [])}
        )
    return found


def notes() -> list[dict[str, str]]:
    """Every erratum and decision: paper, where, kind, printed, taken, why."""
    return [
        {"paper": paper, "where": where, "kind": note.kind, **vars(note)}
        for paper, where, note in all_notes()
    ]


def summary(chosen: Sequence[dict[str, Any]]) -> str:
    """One line: how many equations and listings have an oracle, by kind."""
    parts = []
    for type_, what in ((int, "numbered equations"), (str, "listings")):
        group = [entry for entry in chosen if isinstance(entry["number"], type_)]
        kinds = [entry["kind"] for entry in group if entry["oracle"]]
        if group:
            parts.append(
                f"{len(kinds)} of {len(group)} {what} ({kinds.count('computation')} computations, "
                f"{kinds.count('definition')} definitions)"
            )
    return " and ".join(parts) + " have an oracle"
