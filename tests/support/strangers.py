"""A stranger's module, and the verdicts on the functions in it."""

from benchmarks.verify.conformance import FAILED, conformance_test
from benchmarks.verify.detection import resolve
from benchmarks.verify.operators import OPERATORS


def written(tmp_path, text):
    """A module of a stranger's, in a file."""
    path = tmp_path / "stranger.py"
    path.write_text("import numpy as np\nimport torch\n" + text)
    return str(path)


def verdicts(tmp_path, operator, text, examples=20, only=(), framework=None, limits=None):
    """What each property, or ``only`` some, says of its function ``f``, by the property's name."""
    of, where = OPERATORS[operator], f"{written(tmp_path, text)}:f"
    with resolve(where, of, framework, limits=limits) as candidate:
        found = conformance_test(of, candidate, examples=examples, only=only)
        return {verdict.name: verdict for verdict in found}


def failed(found):
    """The names of the properties that failed."""
    return [name for name, verdict in found.items() if verdict.status == FAILED]
