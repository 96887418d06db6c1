"""Plant every fault, one at a time, and see that its test fails; without faults all pass."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.faults.catalogue import FAULTS
from tests.faults.plant import Fault, planted

TESTS = Path(__file__).parents[1]


class Outcomes:
    """A pytest plugin that counts what passed and what an assertion of the test failed."""

    def __init__(self) -> None:
        """Nothing ran yet."""
        self.passed, self.caught = 0, 0
        self.errors: list[str] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        """Note how a test went."""
        report = yield
        if report.when == "call" and report.passed:
            self.passed += 1
        elif report.failed and call.excinfo.errisinstance(AssertionError):
            self.caught += 1
        elif report.failed:
            self.errors.append(f"{item.name}: {call.excinfo.exconly()}")
        return report


def outcomes(tests: Sequence[str]) -> Outcomes:
    """Run tests, by node ids below ``tests/``, in this process and without a word."""
    found = Outcomes()
    nodes = [str(TESTS / test) for test in tests]
    quiet = ["-q", "--no-header", "--no-summary", "--tb=no", "-p", "no:cacheprovider"]
    with contextlib.redirect_stdout(io.StringIO()):
        pytest.main([*quiet, "--rootdir", str(TESTS.parent), *nodes], plugins=[found])
    return found


def verdict(fault: Fault) -> str:
    """Empty if the fault's test fails by an assertion while it is planted; else what happened."""
    with planted(fault):
        found = outcomes([fault.test])
    if found.caught:
        return ""
    if found.errors:
        return f"raised instead of failing: {found.errors[0]}"
    return "not caught" if found.passed else "no such test"


def main(argv: Sequence[str] | None = None) -> int:
    """0 if the tests pass without faults and every fault is caught; else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="faults to plant; all by default")
    parser.add_argument("--list", action="store_true", help="print the faults and their tests")
    arguments = parser.parse_args(argv)
    unknown = set(arguments.names) - {fault.name for fault in FAULTS}
    if unknown:
        parser.error(f"no such fault: {', '.join(sorted(unknown))}")
    chosen = [fault for fault in FAULTS if not arguments.names or fault.name in arguments.names]
    if arguments.list:
        for fault in chosen:
            print(f"{fault.name}: {fault.says}\n    {fault.function}\n    {fault.test}")
        return 0
    os.environ["HYPOTHESIS_PROFILE"] = "faults"
    tests = list(dict.fromkeys(fault.test for fault in chosen))
    sound = outcomes(tests)
    if sound.caught or sound.errors or sound.passed < len(tests):
        print(f"without faults {sound.passed} tests pass of {len(tests)}: {sound.errors}")
        return 1
    print(f"without faults all {len(tests)} tests pass")
    missed = 0
    for fault in chosen:
        began, said = time.perf_counter(), verdict(fault)
        missed += bool(said)
        took = f"{time.perf_counter() - began:5.1f} s"
        print(
            f"{took}  {'FAILED' if said else 'caught'}  {fault.name}  {said}".rstrip(), flush=True
        )
    print(f"{len(chosen) - missed} of {len(chosen)} faults caught")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
