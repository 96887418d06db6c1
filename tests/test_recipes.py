"""``captionbench train --recipe``: the papers' steps, each from the one before, killed anywhere."""

import os
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import run_folder
from benchmarks.cli import main as cli
from benchmarks.data import Split, scenes
from benchmarks.data.features import ArrayFeatures
from benchmarks.data.vocabulary import END_ID, UNKNOWN_ID, Vocabulary
from benchmarks.run_folder import RunFolder, load_captioner
from benchmarks.training import fit, stages
from benchmarks.training.configuration import RECIPES
from benchmarks.training.objective import cider_d, seeded
from benchmarks.verify.tolerances import assert_close
from reference import cider
from tests.support.runs import RATES, SHORT, SIZES, CtrlC, assert_same, log_of, main
from torch_impl import models
from torch_impl.models import EndToEnd
from torch_impl.training import loop as training_loop

DATA = ["--scenes", "8,3,1"]
TRAIN = ["train", "--recipe", "expansionnet_v2", *DATA, *SIZES, *SHORT, *RATES]
SEEING = [*TRAIN, "--backbone", "tiny"]
STEPS = ("A", "B", "C", "D")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """All four steps, which nobody interrupted."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert main(*SEEING, "--out", folder) == 0
    return folder


@pytest.mark.parametrize(
    ("recipe", "preset", "steps"),
    [
        (
            "expansionnet_v2",
            "paper",
            {
                "A": (2e-4, 10_000, "linear", 0.8, 2, 8, 48, 0.0, 0.1, "radam", 3),
                "B": (3e-5, 0, "linear", 0.55, 1, 2, 48, 0.0, 0.1, "radam", 3),
                "C": (1e-4, 0, "linear", 0.8, 1, 9, 48, 0.0, 0.1, "radam", 5),
                "D": (2e-6, 0, "linear", 1.0, 1, 1, 20, 0.0, 0.1, "radam", 5),
            },
        ),
        (
            "expansionnet_v2",
            "as-run",
            {
                "A": (2e-4, 10_000, "hyperbolic", 0.8, 2, 8, 48, 0.1, 0.3, "radam-as-run", 3),
                "B": (3e-5, 0, "hyperbolic", 0.55, 1, 2, 48, 0.1, 0.3, "radam-as-run", 3),
                "C": (1e-4, 0, "hyperbolic", 0.8, 1, 9, 48, 0.0, 0.1, "radam-as-run", 5),
                "D": (2e-6, 0, "hyperbolic", 1.0, 1, 1, 20, 0.0, 0.1, "radam-as-run", 5),
            },
        ),
        (
            "expansionnet_v1",
            "paper",
            {
                "cross-entropy": (2e-4, 10_000, "linear", 0.8, 2, 12, 48, 0.0, 0.1, "radam", 2),
                "fine-tuning": (5e-6, 0, "linear", 1.0, 2, 1, 10, 0.0, 0.1, "radam", 2),
                "self-critical": (1e-4, 10_000, "linear", 0.8, 2, 35, 32, 0.0, 0.1, "radam", 5),
            },
        ),
        (
            "expansionnet_v1",
            "as-run",
            {
                "cross-entropy": (
                    *(2e-4, 20_000, "hyperbolic", 0.8, 2, 25, 48, 0.1, 0.3),
                    *("radam-as-run", 2),
                ),
                "fine-tuning": (5e-6, 0, "hyperbolic", 1.0, 2, 1, 10, 0.1, 0.3, "radam-as-run", 2),
                "self-critical": (
                    *(1e-4, 20_000, "hyperbolic", 0.8, 2, 35, 32, 0.0, 0.1),
                    *("radam-as-run", 5),
                ),
            },
        ),
    ],
)
def test_recipes_are_the_papers_and_as_run(recipe, preset, steps):
    found = RECIPES[recipe][preset].stages
    assert list(found) == list(steps)
    for name, step in found.items():
        r = step.optimisation
        numbers = (r.lr, r.warmup, r.schedule, r.anneal, r.anneal_every, r.epochs, r.batch_size)
        assert (*numbers, r.label_smoothing, r.dropout, r.algorithm, step.validation_beam) == steps[
            name
        ]
        rewarded = name in ("C", "D", "self-critical")
        assert step.objective == ("self_critical" if rewarded else "cross_entropy")
        assert step.end_to_end == (name in ("B", "D"))
        assert (step.num_samples, step.baseline) == (5, "leave_one_out")
        assert step.captions_per_image == 1


def plain(weights):
    """The captioner's weights, of which some have none to move them: a bias of keys, say."""
    return {
        name.removeprefix("captioner."): value
        for name, value in weights.items()
        if name.startswith(("captioner.decoder", "decoder")) and not name.endswith("key.bias")
    }


def test_each_step_begins_with_the_best_of_the_one_before(whole):
    best = {name: run_folder.load(whole / name / "best.safetensors") for name in STEPS}
    weights = {name: plain(checkpoint.weights) for name, checkpoint in best.items()}
    for name, before in zip(STEPS[1:], STEPS, strict=False):
        first, *_ = (r for r in log_of(whole / name) if r["kind"] == "validation")
        assert (first["step"], first["epoch"]) == (0, -1)
        assert first["CIDEr-D"] == best[before].state["best"]["CIDEr-D"]
        # with rates that move every weight, what did not improve is given back as it was
        kept = best[name].state["best"]
        for key in weights[name].keys() & weights[before].keys():
            assert torch.equal(weights[name][key], weights[before][key]) == (kept["step"] == 0)
    for name in ("C", "D"):
        assert all("reward" in r for r in log_of(whole / name) if r["kind"] == "steps")
    for name in ("A", "C"):
        assert not isinstance(load_captioner(whole / name)[0], EndToEnd)
    trained = run_folder.load(whole / "B" / "last.safetensors").weights
    drawn = stages.load_backbone("tiny", 0).state_dict()
    moved = [k for k in drawn if not torch.equal(trained[f"backbone.{k}"], drawn[k])]
    # every parameter but buffers, and keys' biases, which a softmax does not feel
    assert len(moved) == len(list(stages.load_backbone("tiny", 0).parameters()))


def test_a_step_that_does_not_improve_gives_back_what_it_began_with(tmp_path):
    """At a rate that spoils every weight."""
    data = scenes.make(train=8, val=3, test=1)
    training = RECIPES["expansionnet_v2"]["scenes"]
    chosen = training.stages["C"].but(lr=10.0, epochs=4, batch_size=4)
    sizes = {"d_model": 8, "d_ff": 8, "num_heads": 2, "num_encoder_layers": 1}
    model = training.but(**sizes, num_decoder_layers=1).configuration(data)
    with seeded(3):
        initial = models.build(model).state_dict()
    found = fit.fit(data, model, chosen, 0, tmp_path, initial=initial, improve=True)
    scores = [r["CIDEr-D"] for r in found.history if r["kind"] == "validation"]
    assert [r["step"] for r in found.history if r["kind"] == "validation"] == [0, 2, 4, 6, 8]
    assert scores[0] == max(scores)
    assert found.best["step"] == 0
    last = run_folder.load(RunFolder(tmp_path).last).weights
    for name, value in found.model.state_dict().items():
        assert torch.equal(value, initial[name]), name
    assert any(not torch.equal(last[name], initial[name]) for name in initial)


def interrupted(patch, after):
    """Press Ctrl-C before or after the ``after // 2``-th thing that takes time or is written."""
    left = after

    def counted(function):
        def wrapped(*arguments, **options):
            nonlocal left
            if left == 0:
                raise CtrlC
            left -= 1
            result = function(*arguments, **options)
            if left == 0:
                raise CtrlC
            left -= 1
            return result

        return wrapped

    for owner, name in (
        (training_loop.TrainingLoop, "_step"),
        (fit.FitState, "validate"),
        (run_folder, "save"),
        (stages, "encoded"),
        (run_folder.RunFolder, "prepare"),
    ):
        patch.setattr(owner, name, counted(getattr(owner, name)))


@settings(max_examples=2)
@given(kills=st.lists(st.integers(0, 60), min_size=3, max_size=4))
def test_killed_anywhere_in_any_step_a_recipe_resumes_to_the_same_numbers(
    whole, tmp_path_factory, kills
):
    folder = tmp_path_factory.mktemp("interrupted") / "run"
    for kill in kills:
        resume = ["--resume"] if (folder / "A" / "config.json").exists() else []
        with pytest.MonkeyPatch.context() as patch:
            interrupted(patch, kill)
            assert main(*SEEING, "--out", folder, *resume) in (0, cli.EXIT_INTERRUPTED)
    resume = ["--resume"] if (folder / "A" / "config.json").exists() else []
    assert main(*SEEING, "--out", folder, *resume) == 0
    for name in STEPS:
        assert_same(folder / name, whole / name)


def test_a_full_disk_leaves_the_checkpoint_before_whole_and_the_run_goes_on(
    whole, tmp_path, monkeypatch, capsys
):
    folder, save, room = tmp_path / "run", os.fsync, iter(range(12))

    def fsync(file):
        if next(room, None) is None:
            raise OSError(28, "No space left on device")
        save(file)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        assert main(*SEEING, "--out", folder, "--stages", "A") == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "cannot be written (No space left on device)" in error
    last = run_folder.load(folder / "A" / "last.safetensors")
    assert 0 < last.state["training"]["step"] < 16
    assert not [file for file in (folder / "A").iterdir() if file.name.startswith(".")]
    assert main(*SEEING, "--out", folder, "--resume") == 0
    for name in STEPS:
        assert_same(folder / name, whole / name)


def test_a_reward_s_loss_that_is_nan_stops_at_its_batch_and_keeps_the_checkpoint(
    tmp_path, monkeypatch, capsys
):
    folder = tmp_path / "run"
    assert main(*TRAIN, "--out", folder, "--stages", "A") == 0
    terms, calls = training_loop.Terms, iter(range(100))

    def spoiled(loss, reward):
        return terms(loss * (torch.nan if next(calls) == 2 else 1), reward)

    with monkeypatch.context() as patch:
        patch.setattr("torch_impl.training.self_critical.Terms", spoiled)
        assert main(*TRAIN, "--out", folder, "--stages", "C") == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "loss is nan at step 3 (epoch 2, batch 1), images " in error
    kept = RunFolder(folder / "C").best_or_last
    assert kept is not None
    said = rf"{kept} of step {run_folder.load(kept).state['step']}(, loss \S+,)? is kept"
    assert re.search(said, error)
    assert main(*TRAIN, "--out", folder, "--stages", "C", "--resume") == 0


def test_steps_that_need_pictures_are_left_out_by_choice_alone(tmp_path, capsys):
    folder = tmp_path / "run"
    assert main(*TRAIN, "--out", folder) == 2
    assert "B and D train the backbone too" in capsys.readouterr().err
    assert not folder.exists()
    assert main(*TRAIN, "--out", folder, "--stages", "C", "A") == 0
    assert sorted(file.name for file in folder.iterdir()) == ["A", "C"]
    # in two commands, which are one in two parts
    again = tmp_path / "again"
    assert main(*TRAIN, "--out", again, "--stages", "A") == 0
    assert main(*TRAIN, "--out", again, "--stages", "C") == 0
    for name in ("A", "C"):
        assert_same(again / name, folder / name)


def test_a_recipe_out_of_time_stops_and_goes_on_when_given_more(whole, tmp_path, capsys):
    folder = tmp_path / "run"
    assert main(*SEEING, "--out", folder, "--minutes", 1e-9) == 0
    assert "time is up, --resume continues" in capsys.readouterr().out
    assert not (folder / "B").exists()


def test_v1_s_steps_are_its_own(tmp_path, capsys):
    folder = tmp_path / "run"
    words = ["train", "--recipe", "expansionnet_v1", *DATA, *SIZES, *SHORT, "--dropout", 0.1]
    assert main(*words, "--sampling", "shared", "--out", folder) == 0
    names = list(RECIPES["expansionnet_v1"]["scenes"].stages)
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == [
        str(folder / name) for name in names
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([*TRAIN, "--stages", "E"], "--stages E: expected some of A, B, C, D"),
        ([*TRAIN, "--stages", "C"], "C begins with the weights of the stage before"),
        ([*TRAIN, "--stages", "A", "--preset", "few"], "--preset few: expected one of paper"),
        ([*TRAIN, "--stages", "A", "--initial", "nowhere"], "nowhere: no such file"),
        ([*TRAIN, "--stages", "A", "--images", "."], "--images goes with --backbone"),
        ([*TRAIN, "--backbone", "nowhere"], "nowhere: no such file"),
        ([*SEEING, "--mean-features"], "--mean-features do not go"),
        ([*SEEING, "--images", "."], "--images goes with --karpathy"),
        ([*TRAIN, "--stages", "A", "--accumulate", 0], "--accumulate is 0, expected at least 1"),
        ([*TRAIN, "--stages", "A", "--sampling", "off"], "--sampling off: no self-critical stage"),
        (["train", *DATA, "--stages", "A"], "--stages goes with --recipe"),
        (["train", *DATA, "--preset", "paper"], "--preset paper: expected one of scenes, few"),
        (["train", *DATA, "--backbone", "tiny"], "--backbone goes with --recipe"),
    ],
)
def test_bad_input_to_a_recipe_exits_2_in_one_line_and_writes_nothing(
    words, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert main(*words, "--out", tmp_path / "run") == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("captionbench: error: ")
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_checkpoint_of_other_words_or_sizes_is_refused(whole, tmp_path, capsys):
    words = ["train", "--scenes", "30,3,1", *SIZES, *SHORT, "--out", tmp_path / "run"]
    assert main(*words, "--initial", whole / "A") == 2
    error = capsys.readouterr().err
    assert f"{whole / 'A'}: a vocabulary of " in error
    assert "which is not that of scenes (" in error
    assert f"expected --vocabulary-of {whole / 'A'}" in error
    assert (
        main(*TRAIN, "--stages", "A", "--d-ff", 9, "--out", tmp_path, "--initial", whole / "A") == 2
    )
    assert "does not fit the model: misshapen" in capsys.readouterr().err
    # a backbone that made none of the features
    assert main(*TRAIN, "--stages", "C", "--out", tmp_path, "--initial", whole / "B") == 2
    assert "other than that of the cached features" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


WORDS = ["a", "big", "red", "star", "on", "sand"]
texts = st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join)


@given(st.lists(st.lists(texts, min_size=1, max_size=3), min_size=1, max_size=4), st.data())
def test_the_reward_is_cider_d_with_end_tokens_and_no_reward_for_unknown_words(captions, data):
    """As if by words; what the vocabulary lacks are words, and "unk" is none of them."""
    vocabulary = Vocabulary.from_captions(["a a big big red red"], 2)
    store = ArrayFeatures({i: np.zeros((1, 2)) for i in range(len(captions))})
    split = Split(list(range(len(captions))), dict(enumerate(captions)), store)
    reward = cider_d(split, vocabulary)
    known = [*(vocabulary.encode([word])[1] for word in ("a", "big", "red")), UNKNOWN_ID]
    drawn = st.lists(st.sampled_from(known), max_size=5)
    candidates = [[*data.draw(drawn), END_ID] for _ in captions]
    named = {i: word for word, i in zip(("a", "big", "red"), known, strict=False)}
    named |= {END_ID: "<end>", UNKNOWN_ID: "unk"}
    expected = cider.cider_d(
        [[named[i] for i in candidate] for candidate in candidates],
        [[[*text.split(), "<end>"] for text in of] for of in captions],
    )
    scores = reward.score([[candidate] for candidate in candidates])
    assert_close([score for (score,) in scores], expected)
