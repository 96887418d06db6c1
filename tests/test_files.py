"""Files: atomic replace with several writers and killed ones, links and devices, locks."""

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import nullcontext

import pytest

from benchmarks import files, records
from benchmarks.errors import InputError

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(records.ROOT)}


def _write(path, text, times, barrier):
    barrier.wait()
    for _ in range(times):
        with files.write_atomically(path) as file:
            for _ in range(20):
                file.write(text)
                file.flush()


def test_of_two_writers_at_once_the_file_is_one_s(tmp_path):
    """Every time that it is read, too; and nothing is left beside it."""
    path, context = tmp_path / "f.txt", multiprocessing.get_context("spawn")
    barrier = context.Barrier(3)
    writers = [context.Process(target=_write, args=(path, c, 200, barrier)) for c in "ab"]
    for writer in writers:
        writer.start()
    barrier.wait()
    while any(writer.is_alive() for writer in writers):
        if path.exists():
            assert path.read_text() in ("a" * 20, "b" * 20)
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert [p.name for p in tmp_path.iterdir()] == ["f.txt"]


def test_what_a_killed_writer_left_is_taken_over(tmp_path):
    path = tmp_path / "f.txt"
    code = (
        "import os, sys; from pathlib import Path; from benchmarks import files\n"
        "with files.write_atomically(Path(sys.argv[1])) as file:\n"
        "    file.write('half'); file.flush(); os.kill(os.getpid(), 9)\n"
    )
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", code, path], env=ENVIRONMENT)
        assert done.returncode == -signal.SIGKILL and not path.exists()
    assert len(list(tmp_path.iterdir())) == 1
    with files.write_atomically(path) as file:
        file.write("whole")
    assert path.read_text() == "whole" and list(tmp_path.iterdir()) == [path]


def test_a_failure_leaves_the_old_file_alone(tmp_path):
    path = tmp_path / "f.txt"
    path.write_text("old")
    with pytest.raises(StopIteration), files.write_atomically(path) as file:
        file.write("new")
        raise StopIteration
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_a_link_is_followed(tmp_path):
    target, link = tmp_path / "there" / "f.txt", tmp_path / "link"
    target.parent.mkdir()
    link.symlink_to(target)
    files.check_writable(link)
    for text in ("first", "second"):
        with files.write_atomically(link) as file:
            file.write(text)
        assert link.is_symlink() and target.read_text() == text


def test_a_pipe_and_a_device_are_written_in_place(tmp_path):
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    for path in (pipe, files.Path("/dev/null")):
        files.check_writable(path)
        with files.write_atomically(path) as file:
            file.write("said")
    reader.join()
    assert read == ["said"] and pipe.is_fifo() and files.Path("/dev/null").is_char_device()
    with (
        pytest.raises(InputError, match="/dev/full: cannot be written"),
        files.write_atomically(files.Path("/dev/full")) as file,
    ):
        file.write("said")


@pytest.mark.parametrize("check", [files.check_writable, files.check_folder])
def test_where_root_may_write_but_nothing_can_be_created_is_refused_at_once(check):
    with pytest.raises(InputError, match="that can be written"):
        check(files.Path("/proc/nothing"))


def test_a_name_too_long_for_a_temporary_one_is_refused_at_once(tmp_path):
    for size in (files.LONGEST, files.LONGEST + 1, 255):
        path = tmp_path / ("n" * size)
        with nullcontext() if size == files.LONGEST else pytest.raises(InputError, match="at most"):
            files.check_writable(path)
            with files.write_atomically(path) as file:
                file.write("said")
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("used", [False, True])
def test_folders_made_for_a_lock_stay_only_if_they_are_used(tmp_path, used):
    folder = tmp_path / "new" / "newer"
    with files.locked(folder):
        if used:
            folder.mkdir()
    assert folder.exists() == used and (tmp_path / "new").exists() == used


@pytest.mark.parametrize("name", ["", ".", "link", "below/../real"])
def test_a_folder_has_one_lock_by_whatever_name(tmp_path, monkeypatch, name):
    real = tmp_path / "real"
    (real / "below").mkdir(parents=True)
    (real / "link").symlink_to(real)
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path if "/" in name else real)
    with (
        files.locked(real),
        pytest.raises(InputError, match="expected it to end first"),
        files.locked(files.Path(name), wait=False),
    ):
        pass


def test_a_writable_folder_is_locked_where_its_parent_is_read_only(tmp_path, monkeypatch):
    folder = tmp_path / "volume"
    folder.mkdir()
    access = files.os.access
    monkeypatch.setattr(
        files.os, "access", lambda path, mode: path != tmp_path and access(path, mode)
    )
    with files.locked(folder):
        assert [path.name for path in tmp_path.iterdir()] == ["volume"]
        with pytest.raises(InputError, match="works there"), files.locked(folder, wait=False):
            pass
    assert not list(folder.iterdir())


def test_a_folder_that_another_process_has_is_refused_by_its_number(tmp_path):
    code = (
        "import sys; from pathlib import Path; from benchmarks import files\n"
        "with files.locked(Path(sys.argv[1])):\n"
        "    print('locked', flush=True); sys.stdin.read()\n"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", code, tmp_path / "run"],
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout.readline() == "locked\n"
    with (
        pytest.raises(InputError, match=rf"run: process {owner.pid} works there, expected"),
        files.locked(tmp_path / "run", wait=False),
    ):
        pass
    owner.communicate("")
    with files.locked(tmp_path / "run", wait=False):
        pass


def test_a_folder_that_spice_left_goes_after_a_day(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    names = ("captionbench-spice-old", "captionbench-spice-new", "captionbench-mine")
    for name in names:
        (tmp_path / name).mkdir()
    for name in (names[0], names[2]):
        os.utime(tmp_path / name, (0, 0))
    with files.scratch_folder():
        assert sorted(p.name for p in tmp_path.iterdir() if p.name in names) == sorted(names[1:])
