"""The conformance kit: operators, their oracles and properties, and the test of a candidate."""

from typing import Any


def __getattr__(name: str) -> Any:
    # on demand: a worker process, which imports this package too, has no use for the oracle
    if name == "check":
        from benchmarks.verify.checking import check

        return check
    raise AttributeError(name)
