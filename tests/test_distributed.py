"""A process group trains as one process: shards, sums, resuming with another size, lost ranks."""

import itertools
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from io import StringIO
from multiprocessing import get_context

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import run_folder
from benchmarks.cli import main as cli
from benchmarks.data import Split
from benchmarks.data.batches import CaptionBatches, ImageBatches
from benchmarks.data.features import ArrayFeatures
from benchmarks.data.vocabulary import Vocabulary
from benchmarks.run_folder import RunFolder
from benchmarks.training.objective import cider_d
from benchmarks.verify.tolerances import PROCESSES, assert_close
from tests.support.runs import RATES, SHORT, SIZES
from tests.support.training import CONFIGURATION, RECIPE, numbers
from torch_impl.checkpoints import checkpoint as checkpoints
from torch_impl.models import Captioner
from torch_impl.training import CrossEntropyTraining, ImageBatch, SelfCriticalTraining, distributed
from torch_impl.training.computation import Computation
from torch_impl.training.distributed import ProcessGroup, ProcessGroupError

WORDS = ("a", "big", "red", "star", "and", "blue", "boxes")
OBJECTIVES = ("cross_entropy", "self_critical")
PLAIN = replace(RECIPE, dropout=0.0, algorithm="adam")
MOST = 3


def split_of(seed, ragged):
    """Eight images with one or two captions each; or, not ragged, all of one size."""
    random = np.random.default_rng(seed)
    rows, captions, words = ((1, 5), (1, 3), (1, 6)) if ragged else ((4, 5), (2, 3), (5, 6))

    def caption():
        return " ".join(random.choice(WORDS, random.integers(*words)))

    images = list(range(8))
    features = {i: random.normal(size=(random.integers(*rows), 5)) for i in images}
    references = {i: [caption() for _ in range(random.integers(*captions))] for i in images}
    return Split(images, references, ArrayFeatures(features))


class Precise:
    """Batches whose features are of a model's precision."""

    def __init__(self, batches, dtype):
        self.batches, self.dtype = batches, dtype

    def __len__(self):
        return len(self.batches)

    def epoch(self, epoch, start):
        for batch in self.batches.epoch(epoch, start):
            yield batch._replace(features=batch.features.to(self.dtype))


def training(
    process_group,
    objective,
    seed=0,
    *,
    ragged=True,
    accumulate=1,
    recipe=PLAIN,
    dtype=torch.float64,
):
    """Of a small model; five images a batch, so that the second of an epoch has but three."""
    split, vocabulary = split_of(seed, ragged), Vocabulary(WORDS)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        sizes = {"vocabulary_size": len(vocabulary), "dropout": recipe.dropout}
        model = Captioner(replace(CONFIGURATION, **sizes)).to(dtype)
    given = {"seed": seed, "computation": Computation(accumulate), "process_group": process_group}
    if objective == "self_critical":
        images = ImageBatches(split, 4 if not ragged else 7, seed=seed, process_group=process_group)
        reward = cider_d(split, vocabulary)
        return SelfCriticalTraining(
            model, Precise(images, dtype), recipe, reward, max_length=7, **given
        )
    size = {"captions_per_image": 2, "max_length": 9, "seed": seed, "process_group": process_group}
    captions = CaptionBatches(split, vocabulary, 8 if not ragged else 14, **size)
    # without dropout nothing but the samples of captions is drawn
    sampling = (lambda step: 0.5) if recipe.dropout else None
    return CrossEntropyTraining(model, Precise(captions, dtype), recipe, sampling=sampling, **given)


def trained(process_group, objective, epochs=2, **options):
    """The numbers of every step, the last gradients, and the weights."""
    one = training(process_group, objective, **options)
    found = [numbers(step) for step in one.run(epochs)]
    gradients = {n: p.grad.numpy() for n, p in one.model.named_parameters() if p.grad is not None}
    return found, gradients, {n: w.numpy() for n, w in one.model.state_dict().items()}


def halved(process_group, objective, kill, path, **options):
    """The numbers of the first ``kill`` steps, after which rank 0 saves."""
    one = training(process_group, objective, **options)
    found = [numbers(step) for step in itertools.islice(one.run(2), kill)]
    if process_group.is_main:
        checkpoints.save(path, one.model, one.state_dict())
    return found


def resumed(process_group, objective, path, **options):
    one, checkpoint = training(process_group, objective, **options), checkpoints.load(path)
    one.load_state_dict(checkpoint.weights, checkpoint.state)
    found = [numbers(step) for step in one.run(2)]
    return found, {n: w.numpy() for n, w in one.model.state_dict().items()}


def summed(process_group):
    """Gradients that some ranks lack."""
    having = ((), (0,), (0, 1), (2,))
    parameters = [torch.nn.Parameter(torch.zeros(2, 2)) for _ in range(4)]
    for i, parameter in enumerate(parameters):
        if process_group.rank in having[i]:
            parameter.grad = torch.full((2, 2), 10.0**process_group.rank)
    process_group.all_reduce_gradients(parameters)
    return [None if p.grad is None else p.grad.tolist() for p in parameters]


def unequal(process_group):
    """The error on every rank, where one has other weights."""
    one = training(process_group, "cross_entropy", seed=process_group.rank // 2)
    try:
        next(one.run(1))
    except ProcessGroupError as error:
        return str(error)
    return "trained"


def elected(process_group):
    return process_group.elect_reporter()


def commanded(process_group, port, words):
    """The command line as ``torchrun`` starts it."""
    os.environ.update(
        WORLD_SIZE=str(process_group.world_size),
        RANK=str(process_group.rank),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        TORCHELASTIC_USE_AGENT_STORE="True",
        TORCHELASTIC_RESTART_COUNT="0",
    )
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as error:
        try:
            code = cli.main(words)
        except SystemExit as end:
            code = int(end.code or 0)
    return code, out.getvalue(), error.getvalue()


def _process(answer, function, rank, size, place, given):
    torch.set_num_threads(1)
    words, options = given
    if function is commanded:
        answer.send(commanded(ProcessGroup(rank, size), *words))
        return
    with distributed.join_process_group(dist.FileStore(place, size), rank, size) as process_group:
        answer.send(function(process_group, *words, **options))


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """Call a function of this file in several processes at once: what each returns."""
    context, folder = get_context("forkserver"), tmp_path_factory.mktemp("stores")
    # what PyTorch imports when an optimiser is made, and the command when it is run
    context.set_forkserver_preload([__name__, "torch._dynamo", "benchmarks.cli.train"])
    numbered = itertools.count()

    def call(size, function, *words, **options):
        place, answers = str(folder / str(next(numbered))), []
        for rank in range(size):
            receive, send = context.Pipe(duplex=False)
            given = (send, function, rank, size, place, (words, options))
            context.Process(target=_process, args=given, daemon=True).start()
            send.close()
            answers.append(receive)
        assert all(answer.poll(120) for answer in answers), "a process does not answer"
        return [answer.recv() for answer in answers]

    return call


def assert_equal_steps(found, expected):
    """To rounding: what is counted is equal outright."""
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        for a, b in zip(one, other, strict=True):
            if isinstance(b, float):
                assert_close(a, b, "number")
            else:
                assert a == b


def assert_equal_weights(found, expected, what="weights"):
    """To rounding, of all of them together: some gradients are 0 but for it."""
    assert found.keys() == expected.keys()
    one, other = (
        np.concatenate([of[name].ravel() for name in expected]) for of in (found, expected)
    )
    assert_close(one, other, what)


def assert_same_weights(found, expected):
    """Within what float32 rounds."""
    for name, value in expected.items():
        assert abs(found[name] - value).max() <= PROCESSES, name


@given(items=st.lists(st.integers()), size=st.integers(1, 9))
def test_shares_in_turn_are_the_items_and_nearly_equal(items, size):
    shares = [ProcessGroup(rank, size).shard(items) for rank in range(size)]
    assert list(itertools.chain(*shares)) == items
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    assert ProcessGroup().shard(items) == items


@given(seed=st.integers(0, 99), size=st.integers(1, 9), start=st.integers(0, 2))
def test_shards_of_a_batch_are_the_batch_at_any_world_size(seed, size, start):
    split, vocabulary = split_of(seed, ragged=True), Vocabulary(WORDS)

    def batches(process_group):
        of = CaptionBatches(
            split, vocabulary, 6, max_length=9, seed=seed, process_group=process_group
        )
        return of, ImageBatches(split, 3, seed=seed, process_group=process_group)

    def images(batch):
        rows = zip(batch.features, batch.lengths.int().tolist(), strict=True)
        return [features[:length].flatten().tolist() for features, length in rows]

    def captions(batch):
        if isinstance(batch, ImageBatch):
            return batch.image_ids.tolist()
        own = zip(batch.tokens.tolist(), batch.image_index.int().tolist(), strict=True)
        return [([t for t in tokens if t], images(batch)[image]) for tokens, image in own]

    alone, shared = batches(ProcessGroup()), [batches(ProcessGroup(r, size)) for r in range(size)]
    for whole, *shares in zip(alone, *shared, strict=True):
        assert {len(share) for share in shares} == {len(whole)}
        for position, batch in enumerate(whole.epoch(1, start), start):
            parts = [next(share.epoch(1, position)) for share in shares]
            assert list(itertools.chain(*map(images, parts))) == images(batch)
            assert list(itertools.chain(*map(captions, parts))) == captions(batch)
            assert {tuple(share.image_ids(1, position)) for share in shares} == {
                tuple(whole.image_ids(1, position))
            }


@pytest.mark.parametrize("objective", OBJECTIVES)
@settings(max_examples=2)
@given(seed=st.integers(0, 99), size=st.integers(2, MOST), accumulate=st.integers(1, 2))
def test_processes_take_the_steps_of_one(together, objective, seed, size, accumulate):
    """Of ragged batches, the second of which leaves all processes but one without an image."""
    of_all = together(size, trained, objective, seed=seed, accumulate=accumulate)
    expected, gradients, weights = trained(ProcessGroup(), objective, seed=seed)
    assert any(gradient.any() for gradient in gradients.values())
    for found, of_process, updated in of_all:
        assert_equal_steps(found, expected)
        assert_equal_weights(of_process, gradients, "gradient")
        assert_equal_weights(updated, weights)
        for name, value in of_all[0][2].items():
            assert np.array_equal(updated[name], value), "the same bits in each process"


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("accumulate", [1, 2])
def test_processes_draw_as_the_parts_of_one(together, objective, accumulate):
    """Dropout and scheduled sampling; of equal images, as a part is padded for its own."""
    options = {"recipe": RECIPE, "ragged": False}
    (found, *_), _ = together(2, trained, objective, accumulate=accumulate, **options)
    in_parts, *_ = trained(ProcessGroup(), objective, accumulate=2 * accumulate, **options)
    whole, *_ = trained(ProcessGroup(), objective, **options)
    assert_equal_steps(found, in_parts)
    assert found[0][3] != pytest.approx(whole[0][3]), "each part has masks of its own"


@pytest.mark.parametrize("algorithm", ["sgd", "radam"])
def test_float32_parameters_of_two_processes_are_those_of_one(together, algorithm):
    options = {"epochs": 4, "dtype": torch.float32, "recipe": replace(PLAIN, algorithm=algorithm)}
    (_, _, found), _ = together(2, trained, "cross_entropy", **options)
    _, _, expected = trained(ProcessGroup(), "cross_entropy", **options)
    assert_same_weights(found, expected)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_what_two_began_one_and_three_end(together, tmp_path, objective):
    expected, _, weights = trained(ProcessGroup(), objective)
    path = tmp_path / "last.safetensors"
    begun, _ = together(2, halved, objective, 3, path)
    for size in (1, 3):
        for found, updated in together(size, resumed, objective, path):
            assert_equal_steps(begun + found, expected)
            assert_equal_weights(updated, weights)


def test_gradients_are_summed_where_any_process_has_one(together):
    of_all = together(3, summed)
    assert of_all == 3 * [[None] + [[[total] * 2] * 2 for total in (1.0, 11.0, 100.0)]]


def test_a_rank_with_other_weights_is_named_by_all_and_one_reports(together):
    for found in together(3, unequal):
        assert "rank 2 of 3 has other weights than rank 0" in found
    assert together(3, elected) == [True, False, False]
    assert ProcessGroup().elect_reporter()


def test_a_job_that_cannot_be_joined_is_one_line(monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("RANK", raising=False)
    assert cli.main(["train", "--scenes", "--out", "nowhere"]) == cli.EXIT_BAD_INPUT
    error = capsys.readouterr().err
    assert "cannot join the process group" in error
    assert error.count("\n") == 1


TRAIN = ["train", "--scenes", "8,3,1", *SIZES, "--dropout", "0", *SHORT, *RATES]
STEPS = 8 * 5 // 5 * 2


@pytest.fixture
def port():
    """Where the processes of a command meet, which outlives them, as ``torchrun`` does."""
    stores = []

    def new():
        stores.append(dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False))
        return stores[-1].port

    yield new
    stores.clear()


def assert_same_run(one, other):
    """Both checkpoints and every loss, within what float32 rounds."""
    for name in ("last.safetensors", "best.safetensors"):
        a, b = run_folder.load(one / name), run_folder.load(other / name)
        assert_same_weights(a.weights, b.weights)
    losses = [
        [record["loss"] for record in RunFolder(folder).read_log() if record["kind"] == "steps"]
        for folder in (one, other)
    ]
    assert losses[0] == pytest.approx(losses[1], abs=PROCESSES)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """An uninterrupted run of one process."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    assert cli.main([*TRAIN, "--out", str(folder)]) == 0
    return folder


def test_the_command_trains_as_one_process_and_prints_once(together, port, alone, tmp_path):
    folder = tmp_path / "run"
    words = [*TRAIN, "--out", str(folder)]
    (code, out, error), *others = together(2, commanded, port(), words)
    assert code == 0, error
    assert out.count("\n") == 1
    assert out.endswith(" s, done\n")
    assert others == [(0, "", "")]
    assert_same_run(folder, alone)
    log = RunFolder(folder).read_log()
    assert {record["processes"] for record in log if record["kind"] == "steps"} == {2}
    # there is a run already, as the first process alone sees
    ends = together(2, commanded, port(), words)
    assert [code for code, _, _ in ends] == 2 * [cli.EXIT_BAD_INPUT]
    (elected,) = (error for _, _, error in ends if error)
    assert "holds a run already" in elected
    assert elected.count("\n") == 1


def test_a_recipe_of_several_steps_trains_them_in_turn(together, port, tmp_path):
    recipe = [*TRAIN, "--recipe", "expansionnet_v2", "--stages", "A", "C", "--epochs", "1"]
    ends = together(2, commanded, port(), [*recipe, "--out", str(tmp_path / "two")])
    assert [code for code, _, _ in ends] == [0, 0], ends
    assert cli.main([*recipe, "--out", str(tmp_path / "one")]) == 0
    for step in ("A", "C"):
        assert_same_run(tmp_path / "two" / step, tmp_path / "one" / step)


KILLED = f"""
import os, signal, sys
from benchmarks.cli import main as cli
from torch_impl.training import cross_entropy as training

objective, calls = training.cross_entropy, iter(range({STEPS}))

def cross_entropy(*arguments):
    if os.environ["RANK"] == "1" and next(calls) == {STEPS // 2}:
        os.kill(os.getpid(), signal.SIGKILL)
    return objective(*arguments)

training.cross_entropy = cross_entropy
sys.exit(cli.main(sys.argv[1:]))
"""


def test_a_killed_rank_ends_the_job_in_one_line_and_one_process_resumes(alone, tmp_path):
    script, folder = tmp_path / "killed.py", RunFolder(tmp_path / "run")
    script.write_text(KILLED)
    words = [*TRAIN, "--out", str(folder.path)]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    ended = subprocess.run(
        [*torchrun, "--nproc-per-node", "2", str(script), *words],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(cli.ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode != 0
    lines = [line for line in ended.stderr.splitlines() if line.startswith("captionbench: error")]
    assert len(lines) == 1, ended.stderr
    assert "rank 0 of 2 " in lines[0]
    assert f"{folder.path}: --resume continues" in lines[0]
    # torchrun's own report is of its process, none is of ours
    assert "benchmarks/" not in ended.stderr
    assert checkpoints.load(folder.last).state["training"]["step"] == STEPS // 2
    assert cli.main([*words, "--resume"]) == 0
    assert_same_run(folder.path, alone)
