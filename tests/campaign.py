"""Faults at random from a seed over the commands: kills, doubles, damages, a full disk, bad input.

    python -m tests.campaign --seconds 60 --seed 0
    python -m tests.campaign --seconds 36000 --out FILE    # to the last of TARGET; resumes

A command that ran undisturbed gave the expected result. Each fault then has one of these ends:

* survived: the result is the expected one;
* redone: it is after the same command was run again;
* refused: exit code 2 and one line;
* wrong: another result, an old one lost before there is a new, a traceback, a temporary file or a
  process left, in whatever session. The campaign fails by one of them.

Commands that take minutes or write into the project's own ``reports/`` are left to their own tests:
report, compare, track, record, scale, evaluate, import; counts of a revision are a test.
A trial in ten starts Python anew; the others fork this process, in which every import is done.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from safetensors import SafetensorError
from safetensors.numpy import load

from benchmarks.__main__ import main as captionbench
from benchmarks.children import end_with_parent
from benchmarks.cli.main import module_of
from benchmarks.cli.terminal import grid
from benchmarks.records import ROOT

TARGET = {"killed": 500, "damaged": 300, "bad input": 200, "full disk": 100, "doubled": 50}
ENDS = ("survived", "redone", "refused", "wrong")
TRAIN = (
    "--scenes 8,3,3 --d-model 8 --d-ff 8 --num-heads 2 --num-encoder-layers 1 "
    "--num-decoder-layers 1 --epochs 2 --out run"
)
PR_SET_CHILD_SUBREAPER = 36
OLD = b"old"
"""What a file of results holds before half of the kills and full disks."""
IMPORTED_LATE = (
    "torch_impl.checkpoints.export",
    "onnxruntime",
    "matplotlib.pyplot",
    "torch._dynamo",
)
NEW_PYTHON = 10
"""A trial in so many starts Python anew."""
DAMAGES = ("flipped", "cut", "missing", "of another run")
JUNK = ("", ".", "-1", "nan", "1e99", "\u00e9", "nowhere", "/dev/null/x", "[]", "0", "%s", "a b")
FILES = (".json", ".svg")
VARYING = r'"(time|seconds)": ["\d][^,\n]*'
"""When a printed record was made, and how long a property took."""
STRANGERS = ("pictures", "own", "said.json")
"""What a user brings along: a bit flipped there may mean another picture or word."""
PATIENCE = 1800.0
"""Seconds; exporting takes a minute of a core."""


@dataclass(frozen=True)
class Command:
    """A command, run in a folder of its own.

    Args:
        words: of the command line.
        reads: commands whose results it reads.
        results: files and folders, by which the result is compared; its output if none.
        again: words that are added where it is run again.
        share: how often it is chosen, beside the others' 1.
        steady: its result is the same every time; else it is not compared.
    """

    words: str
    reads: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    again: str = ""
    share: float = 1.0
    steady: bool = True


OWN = "own/dataset_own.json"
COMMANDS = {
    "scenes": Command("scenes --out pictures --num-images 4", (), ("pictures",)),
    "dataset": Command(
        "dataset --images pictures --captions pictures/captions.csv --split-percent 50,25,25 "
        "--min-count 1 --out own",
        ("scenes",),
        (OWN,),
    ),
    "features": Command(
        f"features --karpathy {OWN} --images pictures --out features",
        ("dataset", "scenes"),
        ("features",),
    ),
    "train": Command(f"train {TRAIN}", (), ("run/best.safetensors",), " --resume"),
    "caption": Command(
        "caption --scenes 8,3,3 --checkpoint run --split test --out captions.json",
        ("train",),
        ("captions.json",),
    ),
    "score": Command(
        f"score --references {OWN} --split train --predictions said.json --tokeniser words "
        "--metrics B4 CIDEr-D --json",
        ("dataset",),
    ),
    "export": Command("export --checkpoint run --out onnx", ("train",), ("onnx",)),
    "caption without PyTorch": Command(
        "caption --scenes 8,3,3 --checkpoint onnx --split test --out exported.json",
        ("export",),
        ("exported.json",),
    ),
    "flops": Command("flops --encoder static:8 --plot flops.svg", (), ("flops.svg",)),
    "equations": Command("equations --json"),
    "tables": Command("tables arnet --json"),
    "claims": Command("claims arnet --json", share=0.3),
    "history": Command("history --json", share=0.3),
    "verify": Command(
        f"verify --candidate {ROOT}/tests/candidates/right.py:static_expansion "
        "--operator static_expansion --quick --seed 0 --json",
        share=0.2,
    ),
    "time": Command(
        "time --only static-operator --tiny --out times.jsonl", share=0.1, steady=False
    ),
    "predict": Command(
        "predict --device A100 --only static-layer --out predictions.jsonl --json", share=0.1
    ),
    "reproduce": Command(
        "reproduce lstm_readonly --table words --out words.jsonl", share=0.2, steady=False
    ),
}


class Campaign:
    """Trials in scratch folders, each a function of the seed and its number.

    Args:
        seed: of all that is random.
        folder: where the undisturbed results and the trials are.
    """

    def __init__(self, seed: int, folder: Path) -> None:
        self.seed, self.folder, self.random = seed, folder, random.Random(seed)
        self.faults = [fault for fault, times in TARGET.items() for _ in range(times)]
        self.random.shuffle(self.faults)
        self.whole, self.new_python = folder / "whole", False
        self.whole.mkdir()
        os.environ |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        for module in (*(module_of(c.words.split()[0]) for c in COMMANDS.values()), *IMPORTED_LATE):
            importlib.import_module(module)
        # orphans become this process's children
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
        self.known = set(_children())
        self.seconds: dict[str, float] = {}
        self.expected: dict[str, dict[str, Any]] = {}

    def undisturbed(self, name: str) -> None:
        """Run it and what it reads, once, for the result that is expected and how long it takes."""
        if name in self.expected:
            return
        for each in COMMANDS[name].reads:
            self.undisturbed(each)
        if name == "score":
            self.predict()
        began = time.monotonic()
        done = self.run(name, self.whole)
        self.seconds[name] = time.monotonic() - began
        assert done.returncode == 0, done.stderr
        self.expected[name] = self.result(name, self.whole, done)

    def predict(self) -> None:
        """Write a caption for every image of the train set."""
        images = json.loads((self.whole / OWN).read_text())["images"]
        ids = [image["imgid"] for image in images if image["split"] == "train"]
        said = [{"image_id": i, "caption": "a red ball"} for i in ids]
        (self.whole / "said.json").write_text(json.dumps(said))

    def start(
        self, words: Sequence[str], folder: Path, limit: int | None = None
    ) -> subprocess.Popen:
        """The command in a process group of its own, whose files may have ``limit`` bytes."""

        parent = os.getpid()

        def begin() -> None:
            end_with_parent(parent)
            os.setsid()
            # which a shell's background job, as this process may be, ignores
            signal.signal(signal.SIGINT, signal.default_int_handler)
            if limit is not None:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # so that writing fails instead
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            if not self.new_python:
                _run_here(words)

        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks", *words],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=begin,
        )
        self.known.add(process.pid)
        return process

    def finish(self, process: subprocess.Popen) -> subprocess.CompletedProcess[str]:
        """Wait for it, and for what it started."""
        try:
            out, error = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, error = process.communicate()
            error += "\nTraceback: no end"
        return self.all_ended(
            subprocess.CompletedProcess(process.args, process.returncode, out, error)
        )

    def all_ended(self, done: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
        """Wait for what a command started, and say what of it goes on."""
        end = time.monotonic() + 5
        while left := [pid for pid in _children() if pid not in self.known and not _reaped(pid)]:
            if time.monotonic() > end:
                done.stderr += f"\nTraceback: left running: {_command_line(left[0])}"
                for pid in left:
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        return done

    def run(self, name: str, folder: Path, more: str = "") -> subprocess.CompletedProcess[str]:
        """The command undisturbed."""
        return self.finish(self.start((COMMANDS[name].words + more).split(), folder))

    def result(
        self, name: str, folder: Path, done: subprocess.CompletedProcess[str]
    ) -> dict[str, Any]:
        """The content of the result's files, or else the output."""
        if not COMMANDS[name].steady:
            return {}
        if not COMMANDS[name].results:
            return {"output": re.sub(VARYING, "", done.stdout)}
        found = {}
        for place in COMMANDS[name].results:
            path = folder / place
            files = [path] if path.is_file() else filter(Path.is_file, sorted(path.rglob("*")))
            found |= {str(file.relative_to(folder)): _content(file) for file in files}
        return found

    def trial(self, number: int) -> dict[str, Any]:
        """One fault, and how it ended."""
        self.random, fault = random.Random(f"{self.seed} {number}"), self.faults[number]
        self.new_python = number % NEW_PYTHON == 0
        of_files = fault in ("damaged", "full disk")
        names = [n for n, c in COMMANDS.items() if c.results or not of_files]
        (name,) = self.random.choices(names, [COMMANDS[n].share for n in names])
        self.undisturbed(name)
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        for each in _read_by(name):
            for place in {Path(result).parts[0] for result in COMMANDS[each].results}:
                shutil.copytree(self.whole / place, folder / place, dirs_exist_ok=True)
        if name == "score":
            shutil.copy(self.whole / "said.json", folder)
        end, _, why = getattr(self, fault.replace(" ", "_"))(name, folder).partition(": ")
        shutil.rmtree(folder, ignore_errors=True)
        said = {"number": number, "fault": fault, "command": name, "end": end}
        return said | ({"why": why} if why else {})

    def judged(self, name: str, folder: Path, done: subprocess.CompletedProcess[str]) -> str:
        """How a command ended that nothing stopped from outside."""
        if "Traceback" in done.stderr:
            return f"wrong: {done.stderr.strip().splitlines()[-1]}"
        if done.returncode == 2:
            said = [line for line in done.stderr.splitlines() if "error:" in line]
            return "refused" if len(said) == 1 else f"wrong: {done.stderr}"
        if done.returncode or self.result(name, folder, done) != self.expected[name]:
            return f"wrong: exit code {done.returncode} and another result"
        if left := [str(path.relative_to(folder)) for path in folder.rglob(".*")]:
            return f"wrong: left {left[0]}"
        return "survived"

    def begun(self, name: str, folder: Path) -> list[Path]:
        """In half of the trials there is an old result: of a command whose results are files."""
        paths = [folder / place for place in COMMANDS[name].results if place.endswith(FILES)]
        if self.random.random() < 0.5:
            return []
        for path in paths:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(OLD)
        return paths

    def redone(
        self, name: str, folder: Path, first: subprocess.CompletedProcess[str], old: list[Path]
    ) -> str:
        """How a command ended that was stopped, and is run again."""
        for path in old:
            now = _content(path) if path.exists() else None
            if now not in (OLD, self.expected[name][str(path.relative_to(folder))]):
                return f"wrong: {path.name} neither as it was nor new"
        if "Traceback" in first.stderr or not first.returncode:
            return self.judged(name, folder, first)
        end = self.judged(name, folder, self.run(name, folder, COMMANDS[name].again))
        return end.replace("survived", "redone")

    def killed(self, name: str, folder: Path) -> str:
        """At any time; then run again."""
        old = self.begun(name, folder)
        process = self.start(COMMANDS[name].words.split(), folder)
        time.sleep(self.random.uniform(0, self.seconds[name]))
        with suppress(ProcessLookupError):
            os.kill(
                process.pid, self.random.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
            )
        end = self.redone(name, folder, self.finish(process), old)
        return "wrong: not to be run again" if end == "refused" else end

    def doubled(self, name: str, folder: Path) -> str:
        """The same twice at once: one may be refused, not both."""
        words = COMMANDS[name].words.split()
        both = [self.finish(p) for p in [self.start(words, folder) for _ in range(2)]]
        ends = [self.judged(name, folder, done) for done in both]
        if wrong := [end for end in ends if end.startswith("wrong")]:
            return wrong[0]
        return "survived" if "survived" in ends else "wrong: both were refused"

    def damaged(self, name: str, folder: Path) -> str:
        """A file that it reads is cut, missing, of another run, or a bit of it flipped: of a
        command that reads none, its own result of before."""
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        if not files:
            self.run(name, folder)
            files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        path = self.random.choice(files)
        data, how = bytearray(path.read_bytes()), self.random.choice(DAMAGES)
        other = self.whole / "other" / path.name
        if how == "missing":
            path.unlink()
        elif how == "of another run" and path.parent.name == "run":
            if not other.exists():
                words = TRAIN.replace("--out run", "--seed 1 --epochs 3 --out other")
                assert not self.finish(self.start(["train", *words.split()], self.whole)).returncode
            shutil.copy(other, path)
        elif data:
            at = self.random.randrange(len(data))
            data[at] ^= 1 << self.random.randrange(8)
            path.write_bytes(data[: at if how == "cut" else len(data)])
        done = self.run(name, folder, COMMANDS[name].again if name == "train" else "")
        end = self.judged(name, folder, done)
        if done.returncode == 0 and path.relative_to(folder).parts[0] in STRANGERS:
            return end.replace("wrong: exit code 0 and another result", "survived")
        return end

    def full_disk(self, name: str, folder: Path) -> str:
        """No file may grow beyond some bytes; then run again without the limit."""
        limit = int(2 ** self.random.uniform(3, 14))
        old = self.begun(name, folder)
        first = self.finish(self.start(COMMANDS[name].words.split(), folder, limit))
        return self.redone(name, folder, first, old)

    def bad_input(self, name: str, folder: Path) -> str:
        """An option's value, or a word of the command line, is something else."""
        words = COMMANDS[name].words.split()
        words[self.random.randrange(1, len(words))] = self.random.choice(JUNK)
        done = self.finish(self.start(words, folder))
        if "Traceback" in done.stderr or done.returncode not in (0, 1, 2):
            return f"wrong: {done.stderr.strip().splitlines()[-1:]}"
        return "refused" if done.returncode == 2 else "survived"


def _run_here(words: Sequence[str]) -> NoReturn:
    """The command in this fork, in the place of a new interpreter."""
    os.closerange(3, 256)  # by one of them the parent learns that the command has begun
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", 1)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # as in a new interpreter
    sys.argv, code = ["captionbench", *words], 1
    try:
        code = captionbench()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        os._exit(code)


def _read_by(name: str) -> Iterator[str]:
    """The commands whose results a command reads, and those that they read."""
    for read in COMMANDS[name].reads:
        yield read
        yield from _read_by(read)


def _content(file: Path) -> bytes:
    """Its bytes; of a checkpoint the weights', as beside them it says how long it took."""
    data = file.read_bytes()
    if file.suffix == ".safetensors":
        with suppress(SafetensorError):
            return b"".join(x.tobytes() for _, x in sorted(load(data).items()))
    return data


def _children() -> list[int]:
    """The processes whose parent this is, orphans that it inherited too."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.append(int(stat.parent.name))
    return found


def _reaped(pid: int) -> bool:
    """Whether an orphan has ended."""
    with suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    return True


def _command_line(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()
    return "a process"


def table(ends: Sequence[dict[str, Any]]) -> list[str]:
    """How many of each fault were tried, and how they ended."""
    counts = Counter((one["fault"], one["end"]) for one in ends)
    rows = [
        [fault, *(str(counts[fault, end]) for end in ENDS), str(target)]
        for fault, target in TARGET.items()
    ]
    rows = [[row[0], str(sum(map(int, row[1:-1]))), *row[1:]] for row in rows]
    return grid([["", "tried", *ENDS, "target"], *rows])


def main(argv: Sequence[str] | None = None) -> int:
    """Run trials while there is time, and print the table; 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=1800.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="a line a trial; those that it has are not redone")
    arguments = parser.parse_args(argv)
    out = arguments.out
    ends = [json.loads(line) for line in out.open()] if out and out.exists() else []
    with tempfile.TemporaryDirectory() as folder:
        campaign = Campaign(arguments.seed, Path(folder))
        until = time.monotonic() + arguments.seconds
        tried = {one["number"] for one in ends}
        for number in sorted(set(range(len(campaign.faults))) - tried):
            ends.append(campaign.trial(number))
            if out:
                with out.open("a") as file:
                    file.write(json.dumps(ends[-1]) + "\n")
            if time.monotonic() > until:
                break
    print("\n".join([f"seed {arguments.seed}", *table(ends)]))
    wrong = [one for one in ends if one["end"] == "wrong"]
    print("\n".join(f"{one['fault']}, {one['command']}: {one['why']}" for one in wrong))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
