"""What runs of experiments execute is in their keys: the code that is left out is not run."""

import sys
import threading
from dataclasses import replace
from functools import partial

import pytest

from benchmarks import reachable
from benchmarks.data import scenes
from benchmarks.data.middle_words import choose
from benchmarks.data.scenes import motion
from benchmarks.papers.arnet import captions as arnet
from benchmarks.papers.caption_experiments import in_stages
from benchmarks.papers.expansionnet_v2 import ablation, rewards
from benchmarks.papers.experiment import Place, not_run
from benchmarks.papers.middle_out import captions as middle_out
from benchmarks.papers.middle_out.middle_word_classifier import Schedule
from benchmarks.reachable import Target
from benchmarks.scoring import quality

SIZES = {"d_model": 8, "d_ff": 8, "num_heads": 2}
TINY = {"images": 6, "batch_size": 10, "epochs": 1, "validation_images": None}
EXPERIMENTS = {
    "expansion": (ablation.V2_COEFFICIENTS, "converged", ablation.BOTH, SIZES),
    "attention": (ablation.V1_COEFFICIENTS, "converged", ablation.BASELINE, SIZES),
    "rewards": (rewards.EXPERIMENTS[2], "converged", "ExpansionNet v2", SIZES),
    "recurrent": (arnet.IMAGE_CAPTIONS, "scenes", arnet.ROWS[-1], {"hidden_size": 8}),
}


def executed(job):
    """The project's top-level functions and classes whose code runs while ``job`` does."""
    found = set()

    def note(frame, event, _):
        module = frame.f_globals.get("__name__", "")
        if event == "call" and module.partition(".")[0] in reachable.PROJECT:
            found.add(Target(module, frame.f_code.co_qualname.partition(".")[0]))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        job()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return {each for each in found if each.name in reachable.module(each.module).definitions}


@pytest.fixture(autouse=True)
def without_java(monkeypatch):
    monkeypatch.setattr(quality, "score", partial(quality.score, metrics=("CIDEr-D",)))


def small(_):
    return scenes.make(seed=0, train=6, val=2, test=2)


def small_and_moving(_):
    return motion.make(seed=0, train=6, val=2, test=2)


def tiny(experiment, form, sizes):
    given = experiment.forms[form]
    training = given.training.but(**sizes).each(lambda stage: stage.but(**TINY))
    return replace(experiment, forms={form: replace(given, load=small, training=training)})


def outside(ran, *jobs, without):
    """What ran and is neither in the reach of the jobs nor code that is without effect."""
    reached = reachable.reach(*jobs, without=without)
    ours = {each for each in ran if not reachable._excluded(each.module)}
    return {each for each in ours - set(reached) if each.module != __name__}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_what_a_run_executes_is_in_its_key(name, tmp_path):
    experiment, form, row, sizes = EXPERIMENTS[name]
    experiment = tiny(experiment, form, sizes)
    place = Place(tmp_path, tmp_path / "work")
    runs = [run for run in experiment.runs(form, place, [0]) if run.row == row]
    (run,) = [run for run in runs if run.trial is None]
    without = not_run(run.training, "cpu")
    assert without
    ran = executed(run.make)
    assert len(ran) > 50 and not outside(ran, run.measure, run.form.load, without=without)


def test_what_a_middle_out_run_executes_is_in_its_key(tmp_path):
    experiment = middle_out.SELF_ATTENTION
    form = experiment.forms["scenes"]
    decoder = form.training.decoder.but(hidden_size=8).each(lambda stage: stage.but(**TINY))
    training = replace(form.training, decoder=decoder, classifier=Schedule(1e-2, 1))
    form = replace(form, load=small_and_moving, training=training)
    experiment = replace(experiment, forms={"scenes": form})
    runs = experiment.runs("scenes", Place(tmp_path, tmp_path / "work"), [0])
    run = next(run for run in runs if run.row == "Dual Self-Attention" and run.trial is None)
    without = not_run(run.training, "cpu")
    assert "torch_impl.kernels" in without
    assert not outside(executed(run.make), run.measure, form.load, without=without)


def test_what_a_middle_out_training_executes_is_in_the_key_of_its_folder(tmp_path):
    words = choose(motion.make(seed=0, train=6, val=2, test=2))
    training = middle_out.FORMS["scenes"].training.decoder.but(
        **middle_out.ALL["Dual Self-Attention"],
        hidden_size=8,
        middle_words=tuple(map(words.id_of, words.candidates)),
    )
    training = training.each(lambda stage: stage.but(**TINY, sampling=0.5))
    data = middle_out.learning(words, training.model, 20)
    place = Place(tmp_path, tmp_path / "work")
    ran = executed(lambda: in_stages(data, training, 0, place))
    without = not_run(training, "cpu")
    assert without and Target("torch_impl.models.middle_out", "MiddleOutCaptioner") in ran
    assert not outside(ran, in_stages, motion.make, middle_out.learning, without=without)
