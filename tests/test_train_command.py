"""``captionbench train`` and ``caption``: killed runs resume to the same numbers."""

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.cli import main as cli
from benchmarks.errors import InputError
from benchmarks.run_folder import RunFolder, load, load_captioner
from benchmarks.verify.tolerances import SUMS
from tests.support.runs import (
    SIZES,
    CtrlC,
    assert_same,
    log_of,
    main,
)
from torch_impl.checkpoints import checkpoint as checkpoints
from torch_impl.training import cross_entropy as training

DATA = ["--scenes", "12,4,3"]
SHORT = ["--epochs", 3, "--batch-size", 20, "--warm-up", 4, "--log-every", 2]
SHORT += ["--checkpoint-seconds", 0]
TRAIN = ["train", *DATA, *SIZES, *SHORT]
STEPS = 9


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A run that nobody interrupted."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert main(*TRAIN, "--out", folder) == 0
    return folder


def test_a_run_leaves_its_configuration_words_log_and_checkpoints(whole, capsys):
    assert {file.name for file in whole.iterdir()} == {
        "config.json",
        "vocabulary.json",
        "log.jsonl",
        "last.safetensors",
        "best.safetensors",
    }
    log = log_of(whole)
    assert [record["step"] for record in log if record["kind"] == "steps"] == [2, 3, 5, 6, 8, 9]
    # the scenes' preset validates every so many epochs, and after the last
    assert log[-1]["kind"] == "validation"
    assert log[-1]["step"] == STEPS
    assert json.loads((whole / "config.json").read_text())["model"]["d_model"] == 8
    model, vocabulary = load_captioner(whole)
    assert model.configuration.vocabulary_size == len(vocabulary)


@settings(max_examples=6)
@given(kills=st.lists(st.integers(0, STEPS - 1), min_size=1, max_size=2).map(sorted))
def test_ctrl_c_at_any_step_leaves_a_folder_that_resumes_to_the_same_numbers(
    whole, tmp_path_factory, kills
):
    folder = tmp_path_factory.mktemp("interrupted") / "run"
    objective = training.cross_entropy
    resume: list[str] = []
    for kill in kills:
        steps_left, pressed = kill, False

        def interrupted(*arguments):
            nonlocal steps_left, pressed
            if steps_left == 0:
                pressed = True
                raise CtrlC
            steps_left -= 1
            return objective(*arguments)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(training, "cross_entropy", interrupted)
            code = main(*TRAIN, "--out", folder, *resume)
            assert code == (cli.EXIT_INTERRUPTED if pressed else 0)
        resume = ["--resume"]
    assert main(*TRAIN, "--out", folder, "--resume") == 0
    assert_same(folder, whole)


def test_the_result_as_json_is_the_best_validation(tmp_path, capsys):
    folder = tmp_path / "run"
    assert main(*TRAIN, "--out", folder, "--json") == 0
    (found,) = json.loads(capsys.readouterr().out).values()
    validations = [entry for entry in log_of(folder) if entry["kind"] == "validation"]
    best = max(validations, key=lambda entry: entry["CIDEr-D"])
    assert found["finished"] and found["folder"] == str(folder)
    assert [found["best"][name] for name in ("step", "CIDEr-D")] == [best["step"], best["CIDEr-D"]]


def test_a_killed_process_resumes_to_the_same_numbers(whole, tmp_path):
    folder = RunFolder(tmp_path / "run")
    command = [sys.executable, "-m", "benchmarks", *map(str, TRAIN), "--out", str(folder.path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120
        while not folder.last.exists() and time.monotonic() < deadline:
            assert process.poll() is None, "ended before it was killed"
            time.sleep(0.002)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert folder.last.exists()
    # a line that the kill cut off, and files that it might have
    with folder.log.open("a") as file:
        file.write('{"kind": "steps", "st')
    for path in (folder.config, folder.vocabulary, folder.log, folder.last):
        path.with_name(f".{path.name}.0.partial").write_text("{")
    assert main(*TRAIN, "--out", folder.path, "--resume") == 0
    assert_same(folder.path, whole)
    assert {file.name for file in folder.path.iterdir()} == {file.name for file in whole.iterdir()}


def test_a_run_out_of_time_is_validated_and_goes_on_when_given_more(whole, tmp_path, capsys):
    folder = tmp_path / "run"
    assert main(*TRAIN, "--out", folder, "--minutes", 1e-6) == 0
    assert "time is up" in capsys.readouterr().out
    assert [r["step"] for r in log_of(folder) if r["kind"] == "validation"] == [1]
    assert main(*TRAIN, "--out", folder, "--resume", "--minutes", 1e-6) == 0
    assert len(log_of(folder)) == 2
    assert main(*TRAIN, "--out", folder, "--resume", "--minutes", 60) == 0
    assert " s, done" in capsys.readouterr().out
    a, b = (
        checkpoints.load(folder / "last.safetensors"),
        checkpoints.load(whole / RunFolder(whole).last),
    )
    assert all(torch.equal(a.weights[key], b.weights[key]) for key in a.weights)


def test_a_run_killed_before_a_validation_has_one_when_its_time_is_up(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    objective, calls = training.cross_entropy, iter(range(9))

    def interrupted(*arguments):
        if next(calls) == 2:
            raise CtrlC
        return objective(*arguments)

    monkeypatch.setattr(training, "cross_entropy", interrupted)
    words = [*TRAIN, "--out", folder, "--log-every", 1]
    assert main(*words) == cli.EXIT_INTERRUPTED
    assert not [r for r in log_of(folder) if r["kind"] == "validation"]
    assert main(*words, "--resume", "--minutes", 1e-9) == 0
    assert [r["step"] for r in log_of(folder) if r["kind"] == "validation"] == [3]


def test_bad_input_found_while_training_leaves_no_run_behind(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "run"

    def damaged(*arguments):
        raise InputError("shard: corrupt")

    with monkeypatch.context() as patch:
        patch.setattr(training, "cross_entropy", damaged)
        assert main(*TRAIN, "--out", folder) == 2
    assert not folder.exists()
    assert main(*TRAIN, "--out", folder, "--epochs", 1) == 0


@settings(max_examples=12)
@given(st.data())
def test_an_edited_configuration_or_log_is_refused_by_name(whole, tmp_path_factory, data):
    folder = RunFolder(tmp_path_factory.mktemp("edited") / "run")
    shutil.copytree(whole, folder.path)
    path = data.draw(st.sampled_from([folder.config, folder.log]))
    text = path.read_text()
    digits = [i for i, c in enumerate(text) if c.isdigit()]
    at = data.draw(st.sampled_from(digits))
    path.write_text(f"{text[:at]}{(int(text[at]) + 1) % 10}{text[at + 1 :]}")
    kept = {file: file.read_bytes() for file in folder.path.iterdir()}
    for words in ([*TRAIN, "--resume", "--out"], ["evaluate", *DATA, "--checkpoint"]):
        with redirect_stderr(io.StringIO()) as said:
            assert main(*words, folder.path) == 2
        assert f"error: {path}: " in said.getvalue()
    assert {file: file.read_bytes() for file in folder.path.iterdir()} == kept


def test_another_digit_of_the_log_is_refused_though_the_number_is_the_same(tmp_path):
    folder = RunFolder(tmp_path)
    folder.append({"kind": "train", "step": 1, "loss": 0.30000000000000004})
    assert len(folder.read_log()) == 1
    edited = folder.log.read_text().replace("0.30000000000000004", "0.30000000000000003")
    assert json.loads(edited)["loss"] == 0.30000000000000004
    folder.log.write_text(edited)
    with pytest.raises(InputError, match="line 1 is damaged or edited"):
        folder.read_log()


def test_a_log_that_is_none_is_named(whole, tmp_path, capsys):
    copy = tmp_path / "run"
    shutil.copytree(whole, copy)
    for content in (b"\xff\xfe\n", b"nonsense\n", b"[1]\n"):
        (copy / "log.jsonl").write_bytes(content)
        assert main(*TRAIN, "--out", copy, "--resume") == 2
        error = capsys.readouterr().err
        assert "log.jsonl: not the log of a training run" in error
        assert error.count("\n") == 1
        assert main("evaluate", "--checkpoint", copy, *DATA) == 2
        assert "log.jsonl: not the log of a training run" in capsys.readouterr().err
    (copy / "log.jsonl").unlink()
    assert main(*TRAIN, "--out", copy, "--resume") == 2
    assert "log.jsonl: no such file" in capsys.readouterr().err
    assert main("evaluate", "--checkpoint", copy / "last.safetensors", *DATA) == 2
    assert "log.jsonl: no such file" in capsys.readouterr().err


def test_missing_lines_of_a_log_are_noticed(whole, tmp_path, capsys):
    folder = RunFolder(tmp_path / "run")
    shutil.copytree(whole, folder.path)
    lines = folder.log.read_text().splitlines(keepends=True)
    for missing in range(len(lines)):
        folder.log.write_text("".join(lines[:missing] + lines[missing + 1 :]))
        assert main(*TRAIN, "--out", folder.path, "--resume") == 2
        assert f"{folder.log}: not what it was when last" in capsys.readouterr().err


def test_a_run_that_lost_its_checkpoints_is_not_trained_over(whole, tmp_path, capsys):
    folder = RunFolder(tmp_path / "run")
    shutil.copytree(whole, folder.path)
    for lost, said in ((folder.last, "holds a run already"), (folder.best, "missing, though")):
        lost.unlink()
        kept = {path: path.read_bytes() for path in folder.path.iterdir()}
        assert main(*TRAIN, "--out", folder.path) == 2
        assert said in capsys.readouterr().err
        assert main(*TRAIN, "--out", folder.path, "--resume") == 2
        assert f"{folder.last}: missing, though the run went on" in capsys.readouterr().err
        assert {path: path.read_bytes() for path in folder.path.iterdir()} == kept


def test_more_epochs_go_on_from_a_finished_run(whole, tmp_path):
    folder = tmp_path / "run"
    shorter = [*TRAIN, "--out", folder, "--epochs"]
    assert main(*shorter, 1) == 0
    assert main(*shorter, 3, "--resume") == 0
    losses = [record["loss"] for record in log_of(folder) if record["kind"] == "steps"]
    assert losses == [record["loss"] for record in log_of(whole) if record["kind"] == "steps"]


def test_another_configuration_is_refused_with_every_field_that_differs(whole, capsys):
    before = {file.name: file.read_bytes() for file in whole.iterdir()}
    changed = ["--d-ff", 16, "--dropout", 0.25, "--seed", 1]
    assert main(*TRAIN, *changed, "--out", whole, "--resume") == 2
    message = capsys.readouterr().err
    assert "model.d_ff is 8 there and 16 here" in message
    assert "stage.optimisation.dropout is" in message
    assert "seed is 0 there and 1 here" in message
    assert "d_model" not in message
    assert main("train", "--scenes", "12,4,4", *SIZES, *SHORT, "--out", whole, "--resume") == 2
    assert "data.fingerprint is" in capsys.readouterr().err
    assert main(*TRAIN, "--out", whole) == 2
    assert "holds a run already, expected --resume" in capsys.readouterr().err
    assert {file.name: file.read_bytes() for file in whole.iterdir()} == before


@pytest.mark.parametrize(
    ("batch", "seconds", "place", "step"),
    [
        (15, 0, "epoch 2, batch 3", 5),
        (15, 1e6, "epoch 2, batch 3", 4),
        (10, 0, "epoch 2, batch 1", 5),
        (10, 1e6, "epoch 2, batch 1", None),
    ],
)
def test_a_loss_that_is_not_finite_is_named_and_leaves_a_checkpoint_to_begin_with(
    batch, seconds, place, step, tmp_path, capsys
):
    """The optimiser leaves the weights alone until the sixth step, which spoils them: in an epoch
    or as its last, which is validated and kept.
    """
    folder = RunFolder(tmp_path / "run")
    words = ["--batch-size", batch, "--checkpoint-seconds", seconds]
    spoiling = [*words, "--learning-rate", 1e30]
    assert main(*TRAIN, "--out", folder.path, *spoiling) == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert re.search(rf"(loss|gradient) is (nan|inf) at step 7 \({place}\), images \d", message)
    if step is None:
        assert "no checkpoint of a finite loss came before" in message
        assert not folder.path.exists()
        return
    kept = rf"{folder.best_or_last} of step {step}, loss \d\S*, is kept; expected --initial"
    assert re.search(kept, message)
    assert not list(folder.path.glob("previous-*"))
    assert all(record["step"] <= step for record in folder.read_log())
    again = ["--initial", folder.path, "--out", tmp_path / "again", "--learning-rate", 1e-3]
    assert main(*TRAIN, *words, *again) == 0
    # of the same rate it would be the same loss
    capsys.readouterr()
    assert main(*TRAIN, "--out", folder.path, *spoiling, "--resume") == 2
    assert capsys.readouterr().err.splitlines()[-1] == message
    assert main(*TRAIN, "--out", folder.path, *words, "--resume") == 2
    assert f"expected the same to resume, or --initial {folder.path}" in capsys.readouterr().err


def test_a_run_s_own_checkpoints_are_left_when_a_loss_after_resuming_is_not_finite(
    whole, tmp_path, monkeypatch, capsys
):
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    nan = torch.tensor(torch.nan, requires_grad=True)
    monkeypatch.setattr(training, "cross_entropy", lambda *_: nan)
    assert main(*TRAIN, "--out", folder, "--resume", "--epochs", 4) == 2
    assert f"{folder / 'best.safetensors'} of step " in capsys.readouterr().err
    assert_same(folder, whole)


def test_checkpoints_need_not_wait_for_records(whole, tmp_path, monkeypatch):
    """The record of an interval that a kill fell into is the whole interval's."""
    folder, objective, calls = tmp_path / "run", training.cross_entropy, iter(range(STEPS))
    words = [*TRAIN, "--out", folder, "--log-every", 3]

    def interrupted(*arguments):
        if next(calls) == 2:
            raise CtrlC
        return objective(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(training, "cross_entropy", interrupted)
        assert main(*words) == cli.EXIT_INTERRUPTED
    assert log_of(folder) == []
    assert checkpoints.load(folder / "last.safetensors").state["step"] == 2
    assert main(*words, "--resume") == 0
    record, *_ = log_of(folder)
    losses = [r["loss"] for r in log_of(whole)[:2]]
    assert record["step"] == 3
    # records of steps 1 and 2, and of 3
    assert record["loss"] == pytest.approx((2 * losses[0] + losses[1]) / 3, rel=SUMS)


def test_ctrl_c_says_how_to_go_on_also_before_a_checkpoint(whole, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "run"

    def interrupted(*_):
        raise CtrlC

    with monkeypatch.context() as patch:
        patch.setattr(training, "cross_entropy", interrupted)
        assert main(*TRAIN, "--out", folder) == cli.EXIT_INTERRUPTED
    said = f"interrupted; {folder}: --resume continues from the last checkpoint, if any"
    assert capsys.readouterr().err.endswith(f"captionbench: {said}\n")
    assert main(*TRAIN, "--out", folder, "--resume") == 0
    assert f"{folder}: no checkpoint to resume from" in capsys.readouterr().err
    assert_same(folder, whole)


def test_a_folder_that_is_a_file_is_a_line(tmp_path, capsys):
    (tmp_path / "file").write_text("here")
    for place in ("file", "file/run"):
        assert main(*TRAIN, "--out", tmp_path / place) == 2
        error = capsys.readouterr().err
        assert "expected a folder that can be written" in error and error.count("\n") == 1
    assert (tmp_path / "file").read_text() == "here"


def test_steps_that_can_change_nothing_are_said_to(tmp_path, capsys):
    assert main(*TRAIN, "--epochs", 1, "--batch-size", 60, "--out", tmp_path / "run") == 0
    said = "steps in all: 1, and the optimiser's first 5 change no weight"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "--scenes", "--features", "x"], "--features goes with --karpathy"),
        (["train", "--karpathy", "missing.json"], "--karpathy needs --features"),
        (["train", "--karpathy", "missing.json", "--features", "x"], "missing.json: no such file"),
        ([*TRAIN, "--encoder", "static:0"], "coefficient"),
        ([*TRAIN, "--encoder", "static:"], "static:"),
        ([*TRAIN, "--encoder", "blur"], "unknown mixer 'blur'"),
        ([*TRAIN, "--decoder", "static:4"], "static expansion sees later words"),
        ([*TRAIN, "--decoder", "dynamic:0"], "coefficient"),
        ([*TRAIN, "--num-heads", 3], "--num-heads"),
        ([*TRAIN, "--dropout", 1.5], "dropout is 1.5"),
        ([*TRAIN, "--learning-rate", 0], "lr is 0"),
        ([*TRAIN, "--epochs", 0], "epochs is 0"),
        ([*TRAIN, "--batch-size", 0], "--batch-size is 0"),
        ([*TRAIN, "--captions-per-image", 0], "captions per image is 0"),
        ([*TRAIN, "--log-every", 0], "--log-every: 0, expected at least 1"),
        ([*TRAIN, "--seed", -1], "--seed: -1, expected at least 0"),
        ([*TRAIN, "--seed", 2**63], f"and at most {2**63 - 1}"),
        ([*TRAIN, "--minutes", "nan"], "--minutes: nan, expected a finite number above 0"),
        ([*TRAIN, "--minutes", 0], "--minutes: 0, expected"),
        ([*TRAIN, "--checkpoint-seconds", "nan"], "--checkpoint-seconds is nan"),
        ([*TRAIN, "--device", "nonsense"], "--device nonsense: PyTorch cannot use it"),
        ([*TRAIN, "--device", "meta"], "--device meta: PyTorch cannot use it"),
        ([*TRAIN, "--d-model", 0], "--d-model must be at least 1, not 0"),
        ([*TRAIN, "--d-model", -8], "--d-model must be at least 1, not -8"),
        ([*TRAIN, "--encoder", "static:99999999999999"], "cannot be made"),
        (["train", "--scenes", "0,4,3"], "train is 0 images"),
    ],
)
def test_bad_input_to_train_exits_2_in_one_line_and_writes_nothing(
    words, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert main(*words, "--out", tmp_path / "run") == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("captionbench: error: ")
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_folder_that_lost_its_configuration_or_its_best_checkpoint_is_not_used_in_silence(
    whole, tmp_path, capsys
):
    folder = RunFolder(tmp_path / "run")
    shutil.copytree(whole, folder.path)
    folder.config.unlink()
    kept = {path: path.read_bytes() for path in folder.path.iterdir()}
    for options in ([], ["--resume"]):
        assert main(*TRAIN, "--out", folder.path, *options) == 2
        error = capsys.readouterr().err
        assert f"{folder.config}: missing beside a run's checkpoints" in error
        assert error.count("\n") == 1
    assert {path: path.read_bytes() for path in folder.path.iterdir()} == kept
    words = ["caption", *DATA, "--out", tmp_path / "out.json", "--checkpoint"]
    assert main(*words, folder.path) == 2
    assert f"{folder.config}: no such file" in capsys.readouterr().err
    folder.best.unlink()
    assert main(*words, folder.path) == 2
    assert f"{folder.best}: missing, though the run was validated" in capsys.readouterr().err
    assert not (tmp_path / "out.json").exists()
    assert main(*words, folder.last) == 0


@pytest.mark.parametrize("epochs", [1, 3])
def test_the_best_checkpoint_of_another_run_is_refused(whole, tmp_path, capsys, epochs):
    other = tmp_path / "other"
    assert main(*TRAIN, "--seed", 5, "--epochs", epochs, "--out", other) == 0
    folder = RunFolder(tmp_path / "run")
    shutil.copytree(whole, folder.path)
    shutil.copy(other / "best.safetensors", folder.best)
    kept = {path: path.read_bytes() for path in folder.path.iterdir()}
    capsys.readouterr()
    caption = ["caption", *DATA, "--out", tmp_path / "out.json", "--checkpoint"]
    for words in ([*TRAIN, "--resume", "--out"], caption):
        assert main(*words, folder.path) == 2
        error = capsys.readouterr().err
        assert f"error: {folder.best}: of another run" in error
        assert error.count("\n") == 1
    assert main(*caption, folder.best) == 2
    assert {path: path.read_bytes() for path in folder.path.iterdir()} == kept
    assert not (tmp_path / "out.json").exists()


def test_a_file_that_the_run_did_not_write_is_refused(whole, tmp_path, capsys):
    other = tmp_path / "other"
    assert main(*TRAIN, "--seed", 5, "--out", other) == 0
    run = RunFolder(tmp_path / "run")
    caption = ["caption", *DATA, "--out", tmp_path / "out.json", "--checkpoint", run.path]
    resume = [*TRAIN, "--resume", "--out", run.path]
    foreign, words = (other / "config.json").read_bytes(), run.vocabulary.name
    for name, content, commands, said in [
        ("config.json", foreign, [caption], "of another run than config.json"),
        (words, b'{"words": ["a"]}', [caption, resume], f"{run.vocabulary}"),
        (words, b'{"words"', [caption, resume], f"{run.vocabulary}: not valid JSON"),
        (words, None, [caption, resume], f"{run.vocabulary}: no such file"),
        (run.best.name, None, [caption, resume], f"{run.best}: missing, though the run"),
        (run.last.name, (whole / run.best.name).read_bytes(), [resume], "a best checkpoint, from"),
    ]:
        shutil.rmtree(run.path, ignore_errors=True)
        shutil.copytree(whole, run.path)
        (run.path / name).unlink()
        if content is not None:
            (run.path / name).write_bytes(content)
        capsys.readouterr()
        for command in commands:
            assert main(*command) == 2
            error = capsys.readouterr().err
            assert said in error and error.count("\n") == 1
    assert not (tmp_path / "out.json").exists()


def test_a_best_checkpoint_later_than_the_last_is_replaced_by_the_one_before(whole, tmp_path):
    """As after a kill between the two: the log and the best checkpoint agree on resuming."""
    folder, model = RunFolder(tmp_path), load_captioner(whole)[0]
    for step in (1, 2):
        folder.append({"kind": "validation", "step": step})
        folder.save(folder.best, model, {"step": step})
        if step == 1:
            folder.save(folder.last, model, {"step": step})
            folder.drop_previous()
    folder.truncate_log(1)
    assert checkpoints.load(folder.best).state["step"] == 1
    folder.check_log(load(folder.best))
