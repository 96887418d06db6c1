"""The conformance kit: test whether a function computes what it claims to.

1. ``detection.resolve`` starts the candidate in a worker process (``process``, ``worker``). It
   receives arguments (``shared``) in its framework's arrays (``frameworks``), its results are read
   (``conversion``) and sent (``wire``) at once, and it must not change global ``settings``.
2. ``conformance.conformance_test`` tests the operator's properties (``operators``) in turn.
3. ``search`` tests a property on random cases (``draw``): a check (``properties``, ``gradients``)
   compares with the ``oracle`` within a tolerance (``tolerances``, ``precision``), and gradients
   with its differences (``differentiation``). While the worker works, the next case and the
   oracle's answer to it are computed (``attempt``). A failing case is shrunk.
4. ``snippet`` writes that case as lines to paste into a test.

``project`` has this project's implementations as candidates, ``table`` their verdicts.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    # lazy import: a worker process imports this package too, and does not need the oracle
    if name == "check":
        from benchmarks.verify.conformance import check

        return check
    raise AttributeError(name)
