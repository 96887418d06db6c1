"""The command ``captionbench``: one module a subcommand.

A command's module has ``configure(parser)``, which adds its options, and ``run(arguments) -> int``.
Only the module of the command that was typed is imported.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from benchmarks.errors import InputError

COMMANDS: dict[str, str] = {
    "equations": "the papers' equations, their oracle, and the errata",
    "verify": "hold an implementation, ours or yours, to the oracle",
    "flops": "FLOPs by closed form, and v2's Table VI regenerated",
    "time": "time our implementations against each other",
    "counts": "count operations and bytes, held to the baseline",
    "record": "measure a whole device, into one file to send",
    "compare": "is a revision slower than another, and where",
    "track": "keep this revision's record, for the history",
    "history": "each benchmark over the tracked revisions",
    "predict": "predict times on GPUs by their data sheets",
    "scale": "how time and memory grow with the sizes",
    "tables": "read a regenerated table of a paper",
    "score": "score predicted captions against references",
    "scenes": "write generated scenes as captioned pictures",
    "dataset": "make a data set of your pictures and captions",
    "features": "extract image features, once",
    "train": "train a captioning model, resumable",
    "caption": "caption pictures, or a split, with a checkpoint",
    "export": "a captioner as ONNX, to caption without PyTorch",
    "evaluate": "caption and score a split, and keep the record",
    "reproduce": "train and score the rows of a paper's tables",
    "report": "run the main job and write the report",
    "import": "publish a run's records into reports/",
}
"""What each command does; its module is the one of its name in this package."""


def module_of(command: str) -> str:
    """The dotted name of a command's module (``import`` cannot be a module's name)."""
    return f"benchmarks.cli.{'publish' if command == 'import' else command}"


GO_ON = ("features", "record", "reproduce", "report")
"""Commands that, run again, do what is left of their work."""

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = tuple(ROOT / name for name in ("benchmarks", "reference", "torch_impl"))
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, as all others."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (see {self.prog} --help)")


def parser_for(command: str | None) -> argparse.ArgumentParser:
    """The whole parser, with the options of ``command`` only."""
    parser = _Parser(prog="captionbench", description="Five captioning papers, checked.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        subparser = commands.add_parser(name, help=summary, description=summary)
        if name == command:
            importlib.import_module(module_of(name)).configure(subparser)
    return parser


@contextmanager
def _interruption_held() -> Iterator[None]:
    """Ctrl-C waits for the end: PyTorch, while it is being imported, loses it."""
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    pressed: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if pressed:
        raise KeyboardInterrupt


def _unimportable(error: Exception) -> str | None:
    """A line on which module of ours cannot be imported and why; None of any other error."""
    frames = traceback.extract_tb(error.__traceback__)
    places = [(frame.filename, frame.lineno) for frame in frames if frame.name == "<module>"]
    if isinstance(error, ImportError):
        # an import within a function, or by name
        *_, last = (frame for frame in frames if "importlib" not in frame.filename)
        places.append((last.filename, last.lineno))
    if isinstance(error, SyntaxError):
        places.append((error.filename or "", error.lineno))
    for name, number in reversed(places):
        path = Path(name)
        if any(path.is_relative_to(package) for package in PACKAGES):
            said = error.msg if isinstance(error, SyntaxError) else str(error)
            reason = f"{type(error).__name__}: {(said.splitlines() or ['no reason given'])[0]}"
            return f"{path.relative_to(ROOT)}, line {number}, cannot be imported ({reason})"
    return None


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; exit code 0, 1 (a check failed), 2 (bad input) or 130 (interrupted)."""
    words = list(sys.argv[1:] if argv is None else argv)
    command = words[0] if words and words[0] in COMMANDS else None
    try:
        with _interruption_held():
            parser = parser_for(command)
        arguments = parser.parse_args(words)
        return int(importlib.import_module(module_of(arguments.command)).run(arguments))
    except InputError as error:
        print(f"captionbench: error: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except KeyboardInterrupt as interruption:
        how = str(interruption) or ("the same command goes on" if command in GO_ON else "")
        print("captionbench: interrupted" + (f"; {how}" if how else ""), file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # the reader of our output has gone (`| head`): not an error, and nothing more to say
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if (line := _unimportable(error)) is None:
            raise
        print(f"captionbench: error: {line}", file=sys.stderr)
        return EXIT_BAD_INPUT
