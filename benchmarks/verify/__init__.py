"""The conformance kit: whether a function computes what it claims to.

1. ``conformance.resolve`` starts the candidate in a worker process (``process``, ``worker``), which
   is given arguments (``shared``) and sends results (``wire``), in its framework's arrays
   (``frameworks``), and must leave global ``settings`` alone.
2. ``conformance.conformance_test`` takes the properties of the operator (``operators``) in turn.
3. ``search`` tries a property on random cases (``draw``): a check (``properties``) compares with
   the oracle within its tolerance (``tolerances``, ``precision``). A case that fails is shrunk.
4. ``snippet`` writes that case as lines to paste; with it the verdict goes to the command.

``project`` has this project's implementations as candidates, ``table`` the verdicts on them.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    # on demand: a worker process, which imports this package too, has no use for the oracle
    if name == "check":
        from benchmarks.verify.conformance import check

        return check
    raise AttributeError(name)
