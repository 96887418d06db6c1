"""A stranger's module, and how the operators in it hold."""

from benchmarks.verify.hold import hold, resolve
from benchmarks.verify.operators import OPERATORS


def written(tmp_path, text):
    """A module of a stranger's, in a file."""
    path = tmp_path / "stranger.py"
    path.write_text("import numpy as np\nimport torch\n" + text)
    return str(path)


def verdicts(tmp_path, operator, text, examples=20):
    """What each property says of its function ``f``, by the property's name."""
    where = f"{written(tmp_path, text)}:f"
    found = resolve(where, OPERATORS[operator], None, "cpu")
    return {verdict.property: verdict for verdict in hold(OPERATORS[operator], found, examples)}


def failed(found):
    """The names of the properties that do not hold."""
    return [name for name, verdict in found.items() if not verdict.passed]
