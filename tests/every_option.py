"""Every option of every command, with every value that it was not made for.

    python -m tests.every_option                      # all, in about an hour
    python -m tests.every_option --cases 100 --seed 0 # as many, at random
    python -m tests.every_option --only train score

Options are read off the parsers. A value may be right by chance, and the command then runs, at most
`PATIENCE` seconds before Ctrl-C. Asserted: an exit code of 0, 2, or 130 after Ctrl-C, and 1 of
commands that check something; no traceback; nothing left running. What is refused leaves every file
as it was, and its last line, the only one that says error, names the option or the value, and says
what was expected. Records and reports are kept in scratch folders.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks import records
from benchmarks.children import end_with_parent
from benchmarks.cli.main import COMMANDS, module_of, parser_for
from tests.campaign import TRAIN, Campaign

TEXTS = ("", " ", "a b", "a,b", ":", "[]", "%s", "\u00e9", "\udcff", "a\nb", "x" * 300, "-1", ".")
NUMBERS = ("0", "-1", "1.5", "nan", "inf", "1e99", "9" * 20)
FILES = (
    *("nowhere", "nowhere/x", "folder", "pipe", "loop", "empty", "noise", "list.json"),
    *("/dev/full", "/dev/null", "/dev/null/x"),
)
EXPECTED = (
    r"[Ee]xpected|must be|choose from|invalid \w+ value|not allowed with|required|goes with|"
    r"needs|divisible by|not in the vocabulary|is missing|not a readable|not a record|"
    r"the model's is|cannot be written \("
)
CHECKING = ("claims", "compare", "counts", "predict", "record", "report", "track", "verify", "time")
"""Commands whose exit code is 1 where a check fails."""
PATIENCE = 5.0
END = 60.0
"""Seconds within which Ctrl-C ends a command."""
MEMORY = 8 * 2**30
OWN = "own/dataset_own.json"
RIGHT = f"{records.ROOT}/tests/candidates/right_torch.py:layer_norm"
BASES = {
    "caption": [
        "--checkpoint run --scenes 8,3,3 --split test --out captions.json",
    ],
    "claims": ["arnet"],
    "compare": ["HEAD --counts-only --only static-operator"],
    "counts": ["--json"],
    "dataset": [
        "--images pictures --captions pictures/captions.csv --split-percent 50,25,25 "
        "--min-count 1 --out new"
    ],
    "equations": ["arnet"],
    "evaluate": ["--scenes 8,3,3 --checkpoint run --tokeniser words"],
    "export": ["--checkpoint run --out new"],
    "features": [f"--karpathy {OWN} --images pictures --out new"],
    "flops": ["--encoder static:8"],
    "history": [f"{records.ROOT}/reports/records/comparison.jsonl --json"],
    "import": [""],
    "predict": ["--device A100 --only static-layer"],
    "record": ["--suite cpu --tiny --seconds 0.01 --minutes 0.001 --out new"],
    "report": ["--quick --out new"],
    "reproduce": ["lstm_readonly --table losses --minutes 0.0001 --work new --out new.jsonl"],
    "scale": ["--tiny --only static-batch --seconds 0.01"],
    "scenes": ["--out new --num-images 2"],
    "score": [f"--references {OWN} --split train --predictions said.json --tokeniser words"],
    "tables": ["arnet --table 1"],
    "time": [
        "--tiny --only reward --seconds 0.01",
        f"--candidate {RIGHT} --operator layer_norm --seconds 0.01",
    ],
    "track": ["--only static-operator --seconds 0.01"],
    "train": [
        f"{TRAIN.replace('run', 'new')} --epochs 1",
        f"--karpathy {OWN} --features features --preset few --epochs 1 --out new",
    ],
    "verify": [f"--candidate {RIGHT} --operator layer_norm --examples 1 --seed 0"],
}
"""Words of each command that would run, as briefly as may be."""


@dataclass(frozen=True)
class Case:
    """A command line, and what of it is wrong: the option (or the argument's name), the value."""

    words: tuple[str, ...]
    option: str
    value: str | None

    def __str__(self) -> str:
        return f"{' '.join(self.words[:1])} {self.option} {self.value!r}"


def cases(command: str) -> Iterator[Case]:
    """Each option of the command in the place of its own value, and each flag."""
    commands: Any = parser_for(command)._subparsers
    actions = commands._group_actions[0].choices[command]._actions
    for base in BASES[command]:
        words = base.split()
        yield Case((command, *words), "nothing", None)
        first = next((n for n, word in enumerate(words) if word.startswith("--")), len(words))
        for action in actions:
            option = action.option_strings[-1] if action.option_strings else action.metavar
            if action.nargs == 0:
                if option != "--help":
                    yield Case((command, *words, option), option, None)
                continue
            paths = action.type is Path or option in ("--candidate", "--data", "--backbone")
            values = dict.fromkeys((*TEXTS, *FILES) if paths else (*TEXTS, *NUMBERS))
            for value in values:
                if not action.option_strings:
                    junk = (value, *words[max(first, 1) if first > 1 else first :])
                    yield Case((command, *junk), option, value)
                    continue
                yield Case((command, *_without(words, option), f"{option}={value}"), option, value)


def _without(words: Sequence[str], option: str) -> list[str]:
    """The words without an option and its values."""
    kept, dropping = [], False
    for word in words:
        dropping = word == option or (dropping and not word.startswith("--"))
        if not dropping:
            kept.append(word)
    return kept


class Sweep(Campaign):
    """Cases in a scratch folder, made anew where a case changed it."""

    def __init__(self, folder: Path) -> None:
        for module in map(module_of, COMMANDS):
            __import__(module)
        super().__init__(0, folder)
        for name in ("features", "train", "score"):
            self.undisturbed(name)
        whole = self.whole
        (whole / "folder").mkdir()
        (whole / "folder" / "kept").write_text("kept")
        (whole / "empty").touch()
        (whole / "noise").write_bytes(random.Random(0).randbytes(5000))
        (whole / "list.json").write_text("[]")
        os.mkfifo(whole / "pipe")
        (whole / "loop").symlink_to("loop")
        self.place: Path | None = None

    def fresh(self) -> Path:
        """A folder as it should be."""
        if self.place is None:
            self.place = self.folder / "place"
            subprocess.run(["cp", "-a", self.whole, self.place], check=True)
        return self.place

    def case(self, case: Case) -> tuple[str, str]:
        """How it ended, and what is wrong with that."""
        folder = self.fresh()
        before = _state(folder)
        began = time.monotonic()
        process = self.start(case.words, folder)
        ended = threading.Event()
        threading.Thread(target=_attend, args=(folder / "pipe", ended), daemon=True).start()
        interrupted = False
        try:
            out, error = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            interrupted = True
            os.kill(process.pid, signal.SIGINT)
            try:
                out, error = process.communicate(timeout=END)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                out, error = process.communicate()
                error += "\nTraceback: not ended by Ctrl-C"
        ended.set()
        done = subprocess.CompletedProcess(case.words, process.returncode, out, error)
        done = self.all_ended(done)
        changed = sorted({path for path, _ in before.items() ^ _state(folder).items()})
        if changed:
            shutil.rmtree(folder)
            self.place = None
        end = {0: "survived", 1: "survived", 2: "refused", 130: "interrupted"}.get(done.returncode)
        why = _fault(case, done, changed, interrupted)
        return ("wrong" if why else end or "wrong"), why or f"{time.monotonic() - began:.1f} s"

    def start(
        self, words: Sequence[str], folder: Path, limit: int | None = None
    ) -> subprocess.Popen:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, -1))
        # a fork cannot start worker processes
        self.new_python = words[0] == "report" or any("--processes" in word for word in words)
        try:
            return super().start(words, folder, limit)
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (-1, -1))


def _fault(
    case: Case, done: subprocess.CompletedProcess[str], changed: list[str], interrupted: bool
) -> str | None:
    """What is wrong with how a case ended."""
    codes = {0, 2, *([1] if case.words[0] in CHECKING else []), *([130] if interrupted else [])}
    lines = done.stderr.splitlines()
    if "Traceback" in done.stderr:
        frames = [line.strip() for line in lines if line.startswith('  File "')]
        return f"traceback: {lines[-1]} {frames[-1:]}"
    if done.returncode not in codes:
        return f"exit code {done.returncode}: {done.stderr[-300:]}"
    if left := [path for path in changed if Path(path).name.startswith(".")]:
        return f"left {left}"
    if done.returncode != 2:
        return None
    if case.option == "nothing":
        return f"refused, with nothing wrong: {done.stderr}"
    if changed:
        return f"refused, and changed {changed}: {lines[-1:]}"
    error = lines[-1] if lines else ""
    if not error.startswith("captionbench: error: ") or done.stderr.count("error: ") > 1:
        return f"no line, or several: {done.stderr!r}"
    named = [case.option.strip("-").lower()]
    if case.value is not None:
        escaped = case.value.encode("unicode_escape").decode()
        named += [escaped, case.value] if case.value else ["''", "(empty)"]
    elsewhere = re.search(r"--(?!help)[a-z]", error)  # another option is missing or wrong
    if not elsewhere and not any(name.lower() in error.lower() for name in named):
        return f"names neither option nor value: {error}"
    return None if re.search(EXPECTED, error) else f"says not what was expected: {error}"


def _state(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Kind, size and time of every file."""
    found = {}
    for path in folder.rglob("*"):
        about = path.lstat()
        time_ns = 0 if stat.S_ISDIR(about.st_mode) or path.name == "pipe" else about.st_mtime_ns
        size = 0 if stat.S_ISDIR(about.st_mode) else about.st_size
        found[str(path.relative_to(folder))] = (stat.S_IFMT(about.st_mode), size, time_ns)
    return found


def _attend(pipe: Path, ended: threading.Event) -> None:
    """Read what is written to a pipe, and end it where it is read."""
    while not ended.wait(0.05):
        for mode in (os.O_WRONLY, os.O_RDONLY):
            with suppress(OSError):
                handle = os.open(pipe, mode | os.O_NONBLOCK)
                if mode == os.O_RDONLY:
                    with suppress(BlockingIOError):
                        os.read(handle, 2**16)
                os.close(handle)


@cache
def _sweep() -> Sweep:
    records.REPORTS = Path("reports")
    records.PUBLISHED, records.LOCAL = Path("reports/records"), Path("reports/local/records")
    return Sweep(Path(tempfile.mkdtemp()))


def _case(case: Case) -> tuple[Case, str, str]:
    return case, *_sweep().case(case)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the cases, and print how they ended; 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cases", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", nargs="+", default=list(COMMANDS))
    parser.add_argument("--log", type=Path)
    arguments = parser.parse_args(argv)
    every = [case for command in arguments.only for case in cases(command)]
    random.Random(arguments.seed).shuffle(every)
    every = every[: arguments.cases]
    ends: Counter[str] = Counter()
    workers = arguments.processes, get_context("spawn"), end_with_parent, (os.getpid(),)
    with ProcessPoolExecutor(*workers) as pool:
        for case, end, why in pool.map(_case, every):
            ends[end] += 1
            if arguments.log:
                with arguments.log.open("a") as file:
                    file.write(f"{end}\t{case}\t{why!r}\n")
            if end == "wrong":
                print(f"{case}: {why}", flush=True)
    print(", ".join(f"{n} {end}" for end, n in sorted(ends.items())), f"of {len(every)}")
    return int(bool(ends["wrong"]))


if __name__ == "__main__":
    sys.exit(main())
