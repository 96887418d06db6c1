"""The scorers in Java: the PTB tokeniser, METEOR 1.5 and SPICE 1.0.

They are the programs in pycocoevalcap, run with its options. Its Python wrappers are not used: they
write into site-packages, and hang when interrupted.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path

import pycocoevalcap.spice
from pycocoevalcap.tokenizer.ptbtokenizer import PUNCTUATIONS

# under this name: keys of records depend on the code below, but not on how processes are started
from benchmarks import children as subprocess

FOLDER = Path(pycocoevalcap.spice.__path__[0]).parent
SPICE_MODELS = ("stanford-corenlp-3.6.0.jar", "stanford-corenlp-3.6.0-models.jar")


class UnavailableError(Exception):
    """A scorer is unavailable: the message names it, and what is missing or went wrong."""


def find_java(what: str) -> str:
    """The path of ``java``, in ``JAVA_HOME`` or else on the ``PATH``.

    Raises:
        UnavailableError: there is none.
    """
    home = os.environ.get("JAVA_HOME")
    java = (home and shutil.which("java", path=Path(home) / "bin")) or shutil.which("java")
    if java is None:
        raise UnavailableError(f"{what} needs Java, and no java is on the PATH or in JAVA_HOME")
    return java


def has_java() -> bool:
    """Whether there is a ``java``."""
    try:
        find_java("it")
    except UnavailableError:
        return False
    return True


def missing_models() -> list[str]:
    """The files of SPICE's models that are missing in pycocoevalcap's folder."""
    folder = FOLDER / "spice" / "lib"
    return [jar for jar in SPICE_MODELS if not (folder / jar).exists()]


def available() -> tuple[str, ...]:
    """The available requirements of the scorers: "Java", "SPICE models".

    Java is started: some systems have a stub that only says where to get it.
    """
    found = []
    with suppress(UnavailableError):
        if _starts(find_java("it")):
            found.append("Java")
    return (*found, *(() if missing_models() else ("SPICE models",)))


@cache
def _starts(java: str) -> bool:
    try:
        return subprocess.run([java, "-version"], capture_output=True).returncode == 0
    except OSError:
        return False


def _not_started(what: str, java: str, error: OSError) -> UnavailableError:
    return UnavailableError(f"{what} cannot start {java} ({error.strerror})")


def _failure(what: str, code: int | None, stderr: str) -> UnavailableError:
    last = (stderr.strip().splitlines() or ["no message"])[-1]
    return UnavailableError(f"{what} failed in Java (exit code {code}): {last}")


def _run(what: str, arguments: Sequence[str], folder: Path, text: str = "") -> str:
    """The output of a Java program for the input ``text``; leaves no process when interrupted."""
    command = [find_java(what), *arguments]
    try:
        done = subprocess.run(command, cwd=folder, input=text.encode(), capture_output=True)
    except OSError as error:
        raise _not_started(what, command[0], error) from error
    if done.returncode:
        raise _failure(what, done.returncode, done.stderr.decode(errors="replace"))
    return done.stdout.decode()


def ptb_tokenise(captions: Sequence[str]) -> list[str]:
    """Tokenise captions: lower-case Penn Treebank tokens, separated by spaces, no punctuation.

    Raises:
        UnavailableError: there is no Java, or it failed.
    """
    what = "the PTB tokeniser"
    options = ("-preserveLines", "-lowerCase")
    program = ("-cp", "stanford-corenlp-3.4.1.jar", "edu.stanford.nlp.process.PTBTokenizer")
    # one caption a line: remove everything that Java or Python treats as a line end
    text = "".join(" ".join(caption.splitlines()) + "\n" for caption in captions)
    output = _run(what, (*program, *options), FOLDER / "tokenizer", text)
    lines = output.split("\n")[:-1]
    if len(lines) != len(captions):
        raise UnavailableError(f"{what} gave {len(lines)} lines for {len(captions)} captions")
    punctuation = {*PUNCTUATIONS, ""}
    return [" ".join(w for w in line.split(" ") if w not in punctuation) for line in lines]


class _Meteor:
    """METEOR's running process; it exits when its stdin is closed, even if this process dies."""

    def __init__(self) -> None:
        command = [find_java("METEOR"), "-jar", "-Xmx2G", "meteor-1.5.jar", "-", "-", "-stdio"]
        command += ["-l", "en", "-norm"]
        with ExitStack() as stack:
            self._stderr = stack.enter_context(tempfile.TemporaryFile("w+", errors="replace"))
            try:
                process = subprocess.Popen(
                    command,
                    cwd=FOLDER / "meteor",
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._stderr,
                    encoding="utf-8",
                )
            except OSError as error:
                raise _not_started("METEOR", command[0], error) from error
            self.process = stack.enter_context(process)
            stack.callback(self._hang_up)
            self._open = stack.pop_all()

    def _write(self, *fields: str) -> None:
        assert self.process.stdin
        # if the process has exited, reading its answer raises the reason
        with suppress(BrokenPipeError):
            self.process.stdin.write(" ||| ".join(fields) + "\n")
            self.process.stdin.flush()

    def _read(self) -> str:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait()
            self._stderr.seek(0)
            raise _failure("METEOR", code, self._stderr.read())
        return line.strip()

    def score(
        self, candidates: Sequence[str], references: Sequence[Sequence[str]]
    ) -> tuple[float, list[float]]:
        """Count each caption's matches, then compute scores from all counts."""
        counts = []
        for candidate, captions in zip(candidates, references, strict=True):
            self._write(
                "SCORE", *(caption.replace("|||", " ") for caption in (*captions, candidate))
            )
            counts.append(self._read())
        self._write("EVAL", *counts)
        each = [float(self._read()) for _ in counts]
        return float(self._read()), each

    def _hang_up(self) -> None:
        # close stdin before the process' __exit__, where unwritten data would raise
        with suppress(BrokenPipeError):
            assert self.process.stdin
            self.process.stdin.close()

    def close(self) -> None:
        self.process.kill()
        self._open.close()


_waiting: list[_Meteor] | None = None
"""Idle METEOR processes for the next call; None if they are not kept."""


def keep_meteor() -> None:
    """Keep METEOR's process for later calls until this process ends: starting takes seconds."""
    global _waiting
    _waiting = [] if _waiting is None else _waiting


@contextmanager
def meteor_kept() -> Iterator[None]:
    """Keep METEOR's process between calls in the block, and end it after."""
    global _waiting
    keep_meteor()
    try:
        yield
    finally:
        while _waiting:
            _waiting.pop().close()
        _waiting = None


def _program() -> _Meteor:
    """An idle process that still runs, or a new one."""
    while _waiting:
        program = _waiting.pop()
        if program.process.poll() is None:
            return program
        program.close()
    return _Meteor()


@contextmanager
def meteor(
    candidates: Sequence[str], references: Sequence[Sequence[str]]
) -> Iterator[Future[tuple[float, list[float]]]]:
    """METEOR of the corpus and of each image, 0 to 1, computed in a thread during the block.

    The corpus score is METEOR's own aggregate, not the mean over images. After the block, even on
    Ctrl-C, the process has ended or is kept (`keep_meteor`).

    Raises:
        UnavailableError: there is no Java; or, from the future's ``result()``, it failed.
    """
    program = _program()
    kept = False
    try:
        with ThreadPoolExecutor(1) as pool:
            scored = pool.submit(program.score, candidates, references)
            try:
                yield scored
                kept = _waiting is not None and scored.done() and scored.exception() is None
            finally:
                if not kept:
                    program.process.kill()
    finally:
        if kept and _waiting is not None:
            _waiting.append(program)
        else:
            program.close()


def spice(
    candidates: Sequence[str], references: Sequence[Sequence[str]]
) -> tuple[float, list[float]]:
    """SPICE of the corpus and of each image, 0 to 1; the corpus score is the mean over images.

    Raises:
        UnavailableError: Java or the Stanford models are missing, or it failed.
    """
    folder = FOLDER / "spice"
    if absent := missing_models():
        models = (
            f"the Stanford CoreNLP 3.6.0 models, and {' and '.join(absent)} "
            f"{'are' if absent[1:] else 'is'} not in pycocoevalcap/spice/lib"
        )
        try:
            find_java("SPICE")
        except UnavailableError as why:
            raise UnavailableError(f"{why}; it also needs {models}") from None
        raise UnavailableError(f"SPICE needs {models}")
    cases = [
        {"image_id": image, "test": candidate, "refs": list(captions)}
        for image, (candidate, captions) in enumerate(zip(candidates, references, strict=True))
    ]
    with tempfile.TemporaryDirectory(prefix="captionbench-spice-") as name:
        given, results = Path(name) / "captions.json", Path(name) / "scores.json"
        given.write_text(json.dumps(cases))
        options = (str(given), "-out", str(results), "-subset", "-silent")
        _run("SPICE", ("-Xmx8G", "-jar", "spice-1.0.jar", *options), folder)
        scores = {item["image_id"]: item["scores"] for item in json.loads(results.read_text())}
    each = [float(scores[image]["All"]["f"]) for image in range(len(cases))]
    if not all(map(math.isfinite, each)):
        raise UnavailableError("SPICE gave a score that is not a number")
    return sum(each) / len(each), each
