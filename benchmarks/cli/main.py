"""The command ``captionbench``: one module per subcommand.

A command's module has ``configure(parser)``, which adds its options, and ``run(arguments) -> int``.
Only the module of the command that was typed is imported.
"""

from __future__ import annotations

import argparse
import difflib
import errno
import importlib
import io
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from benchmarks import __version__
from benchmarks.errors import InputError

COMMANDS: dict[str, str] = {
    "equations": "the papers' equations, their oracle, and the errata",
    "verify": "test an implementation, ours or yours, against the oracle",
    "flops": "FLOPs by closed form, and v2's Table VI regenerated",
    "time": "time our implementations against each other",
    "counts": "count operations and bytes, compared with the baseline",
    "record": "measure a whole device, into one file to send",
    "compare": "is a revision slower than another, and where",
    "track": "keep this revision's record, for the history",
    "history": "each benchmark over the tracked revisions",
    "predict": "predict times on GPUs by their data sheets",
    "scale": "how time and memory grow with the sizes",
    "tables": "read a regenerated table of a paper",
    "claims": "what the papers claim, and what holds here",
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
    """The dotted name of a command's module: ``import`` cannot name one."""
    return f"benchmarks.cli.{'publish' if command == 'import' else command}"


RESUMING = ("features", "record", "reproduce", "report")
"""Commands that resume when they are run again."""
SIZES = ("batch_size", "d_model", "d_ff", "beam_size", "processes", "length", "num_images", "only")
"""Options that save memory when they are smaller."""
WRITTEN = ("out", "plot", "overlay", "work")
"""Options whose paths are written; other paths are read."""
OF_A_FOLDER = re.compile(r"(\.safetensors|\.npy|\.onnx|^(config|vocabulary|index|log)\.jsonl?)$")
"""Names of files in folders of runs, features and exported models."""
SEE_HELP = "(see captionbench --help)"

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = tuple(ROOT / name for name in ("benchmarks", "reference", "torch_impl"))
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, and which accepts no abbreviated options."""

    def __init__(self, **keywords: object) -> None:
        super().__init__(**keywords, allow_abbrev=False)  # type: ignore[arg-type]
        self.register("type", Path, _path)

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message.removeprefix('argument ')} (see {self.prog} --help)")

    def _print_message(self, message: str, file: Any = None) -> None:
        # argparse hides that the output cannot be written
        if message:
            (file or sys.stderr).write(message)

    def parse_known_args(self, args=None, namespace=None):
        """Refuse an unknown option before anything else, and name the nearest."""
        for word in args:
            name = word.partition("=")[0]
            if word == "--" or (self._subparsers and not word.startswith("-")):
                break  # values follow, or the options of a command
            is_option = re.match(r"--|-[^\W\d]", word)
            if is_option and name not in self._option_string_actions:
                near = _nearest(name, self._option_string_actions)
                self.error(f"{name}: no such option{near}")
        parsed, left = super().parse_known_args(args, namespace)
        for action in self._actions:
            _check_paths(action, getattr(parsed, action.dest, None))
        _check_no_input_is_written(self._actions, parsed)
        return parsed, left


def _path(text: str) -> Path:
    """The type of all options that are a `Path`: one that can be looked up, and recorded."""
    try:
        text.encode()
        os.stat(text)  # noqa: PTH116 - to Path, an empty name is the current folder
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(f"{text}, expected a name in UTF-8") from None
    except OSError as error:
        if not text or error.errno in (errno.ENAMETOOLONG, errno.ELOOP, errno.EACCES):
            message = f"{text or '(empty)'}: {error.strerror}, expected a file or a folder"
            raise argparse.ArgumentTypeError(message) from None
    return Path(text)


def _check_paths(action: argparse.Action, value: Any) -> None:
    """Check an option's paths before any work: where files are to be written, and no devices.

    Raises:
        InputError: a result cannot be written there; a device, perhaps without end, is to be read.
    """
    paths = [each for each in (value if isinstance(value, list) else [value]) if each is not None]
    if action.type is not Path or not paths:
        return
    from benchmarks.files import check_folder, check_writable

    for path in map(Path, paths):
        if action.dest in WRITTEN:
            (check_folder if action.metavar == "DIR" else check_writable)(path)
        elif path.is_char_device() or path.is_block_device():
            raise InputError(f"{path}: a device, expected a file or a folder")


def _check_no_input_is_written(actions: Iterable[argparse.Action], parsed: object) -> None:
    """Check that no file that an option reads is one that another writes.

    Raises:
        InputError: one is, or is a file of a run or of features in a folder that is read.
    """
    of_paths = [action for action in actions if action.type is Path]
    for action in of_paths:
        output = getattr(parsed, action.dest, None)
        if action.dest not in WRITTEN or output is None or not output.is_file():
            continue
        target = output.resolve()
        for other in of_paths:
            value = None if other.dest in WRITTEN else getattr(parsed, other.dest, None)
            for path in value if isinstance(value, list) else [value]:
                place = path and Path(path).resolve()
                if place == target or (place == target.parent and OF_A_FOLDER.search(target.name)):
                    name = other.option_strings[-1] if other.option_strings else other.dest
                    raise InputError(f"{output}: {name} reads it, expected another file to write")


def _nearest(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(known), n=1)
    return f", did you mean {near[0]}?" if near else ""


def parser_for(command: str | None) -> argparse.ArgumentParser:
    """The whole parser, with the options of ``command`` only."""
    parser = _Parser(prog="captionbench", description="Five captioning papers, checked.")
    parser.add_argument("--version", action="version", version=f"captionbench {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        subparser = commands.add_parser(name, help=summary, description=summary)
        if name == command:
            importlib.import_module(module_of(name)).configure(subparser)
    return parser


@contextmanager
def _interruption_held() -> Iterator[None]:
    """Defer Ctrl-C to the end of the block: PyTorch's import loses it."""
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
    """Which module of ours cannot be imported and why; None for any other error."""
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
    arguments = argparse.Namespace()
    _print_anything()
    try:
        if words and command is None and not words[0].startswith("-"):
            raise InputError(
                f"{words[0]}: no such command{_nearest(words[0], COMMANDS)} {SEE_HELP}"
            )
        with _interruption_held():
            parser = parser_for(command)
        try:
            arguments = parser.parse_args(words)
            code = int(importlib.import_module(module_of(arguments.command)).run(arguments))
        except SystemExit as end:  # --help and --version
            code = int(end.code or 0)
        if sys.stdout:  # None after a shell's >&-
            sys.stdout.flush()
        return code
    except InputError as error:
        _say(f"error: {_as_typed(str(error), arguments)}")
        return EXIT_BAD_INPUT
    except KeyboardInterrupt as interruption:
        how = str(interruption) or ("the same command resumes" if command in RESUMING else "")
        _say("interrupted" + (f"; {how}" if how else ""))
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # the reader of our output has ended (`| head`): not an error
        _drop_output()
        return 0
    except PermissionError as error:
        _say(f"error: {error.filename or error}: {error.strerror}, expected permission")
        return EXIT_BAD_INPUT
    except Exception as error:
        line = _unimportable(error)
        if line is None and _is_out_of_memory(error):
            given = (f"--{name.replace('_', '-')}" for name in SIZES if name in vars(arguments))
            smaller = ", ".join(given) or "the input"
            reason = (str(error).splitlines() or ["out of memory"])[0]
            line = f"not enough memory ({reason}), expected less of {smaller}"
        if line is None and _is_full_output(error):
            _drop_output()
            line = f"standard output cannot be written ({getattr(error, 'strerror', error)})"
        if line is None:
            raise
        _say(f"error: {line}")
        return EXIT_BAD_INPUT


def _say(line: str) -> None:
    """Print one line on standard error, if that can be written: names of files may hold more."""
    line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
    with suppress(OSError):
        print(f"captionbench: {line}", file=sys.stderr)


def _print_anything() -> None:
    """Escape characters that the terminal's encoding lacks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _as_typed(message: str, arguments: argparse.Namespace) -> str:
    """The message, with names of arguments replaced by their options."""
    names = [name for name in vars(arguments) if "_" in name]
    pattern = rf"(?<![\w./-])({'|'.join(names) or '(?!)'})(?![\w./])"
    return re.sub(pattern, lambda found: "--" + found[0].replace("_", "-"), message)


def _is_out_of_memory(error: Exception) -> bool:
    """Whether memory ran out, in Python, NumPy or PyTorch, or a size is beyond any memory."""
    names = {kind.__name__ for kind in type(error).__mro__}
    ends = "can't allocate memory", "Overflow when unpacking long", "size calculation overflowed"
    return bool({"MemoryError", "OutOfMemoryError"} & names) or any(
        end in str(error) for end in ends
    )


def _is_full_output(error: Exception) -> bool:
    """Whether standard output cannot be written: errors of other files have a name."""
    full = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO)
    return isinstance(error, OSError) and error.errno in full and error.filename is None


def _drop_output() -> None:
    """Discard buffered output, which would fail again when the interpreter ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
