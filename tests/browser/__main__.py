"""``python -m tests.browser``: build the site of the published records, and try it in Chromium.

Without a browser it says that it is not run.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path

from benchmarks import records, workers
from benchmarks.perf import threads
from benchmarks.report import build
from tests.browser import chromium, explorer, site

CHECKS = (*site.CHECKS, *explorer.CHECKS)


def main() -> int:
    """Run every check; 1 if one fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.browser", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of what is random (default 0)")
    parser.add_argument("--only", default="", help="checks whose names have this")
    parser.add_argument("--site", type=Path, help="a built site (default: build one)")
    arguments = parser.parse_args()
    if chromium.find() is None:
        print(f"not run: no browser on this machine, expected one of {', '.join(chromium.NAMES)}")
        return 0
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        built = arguments.site or Path(folder)
        if arguments.site is None:
            build.write_site(build.pages(records.load(records.PUBLISHED)), built)
        chosen = [check for check in CHECKS if arguments.only in check.__name__]
        calls = [partial(chromium.tried, check, built, arguments.seed) for check in chosen]
        with workers.submitted(calls, threads.usable()) as outcomes:
            for check, outcome in zip(chosen, outcomes, strict=True):
                is_ok, said = outcome.result()
                failed += not is_ok
                what = check.__name__.replace("_", " ")
                print(f"{what}: {'ok' if is_ok else 'FAILED'}: {said}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
