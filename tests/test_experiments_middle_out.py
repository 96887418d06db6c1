"""Middle-Out's Tables 2 to 7: every row from a trained model, oracle and classifier, control."""

import json
from dataclasses import dataclass, replace
from functools import cached_property

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import papers
from benchmarks.cli import tables
from benchmarks.cli.main import main
from benchmarks.data import scenes
from benchmarks.data.middle_words import choose
from benchmarks.data.scenes import motion
from benchmarks.errors import InputError
from benchmarks.kinds import MiddleOut
from benchmarks.papers.experiment import Place
from benchmarks.papers.middle_out import captions as middle_out
from benchmarks.papers.middle_out import middle_word_classifier
from benchmarks.papers.middle_out.captions import ABLATION, FORMS, MODELS, learning
from benchmarks.papers.middle_out.middle_word_classifier import Schedule
from benchmarks.papers.middle_out.scores import (
    BASELINE,
    MIDDLE_OUT,
    WITH_WORD,
    Trained,
    control,
    mixed,
    pairs_of,
)
from benchmarks.scoring import captioners
from tests.support.pages import report as report_of
from tests.support.records import record
from torch_impl.models import sequence_to_sequence

DATA = motion.make(seed=0, train=16, val=4, test=8)


@pytest.fixture(autouse=True)
def without_java(monkeypatch):
    """METEOR is started for every score, which takes longer than all else here."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")


@pytest.fixture
def place(tmp_path):
    return Place(None, tmp_path)


@pytest.fixture(scope="module")
def small():
    form = FORMS["scenes"]
    decoder = form.training.decoder.but(d_embedding=6, hidden_size=6, max_length=8)
    decoder = decoder.each(
        lambda stage: stage.but(epochs=1, batch_size=40, validate_every=1, max_length=8)
    )
    two = middle_out.TwoTrainings(decoder, Schedule(0.01, 2))
    return replace(form, load=lambda _: DATA, training=two)


@pytest.fixture(scope="module")
def made(small, tmp_path_factory):
    """The records of all rows with one seed."""
    patch = pytest.MonkeyPatch()
    patch.setitem(FORMS, "scenes", small)
    patch.delenv("JAVA_HOME", raising=False)
    patch.setenv("PATH", "")
    place = Place(None, tmp_path_factory.mktemp("work"))
    runs = [
        run
        for experiment in (middle_out.VIDEO_CAPTIONS, middle_out.SELF_ATTENTION)
        for run in experiment.runs("scenes", place, [0])
    ]
    assert [run.row for run in runs] == [*MODELS, *ABLATION]
    assert len({run.key for run in runs}) == len(runs)
    found = [record for run in runs for record in run.make()]
    patch.undo()
    return found


def test_every_row_of_the_paper_s_models_is_measured(made):
    rows = {(r.what.table, r.what.row) for r in made}
    for name in ("2", "4", "5", "7"):
        expected = {
            (name, row.name)
            for row in papers.load("middle_out").table(name).rows
            if row.group != "Previous Work"
        }
        assert expected == {place for place in rows if place[0] == name}
    assert {("3", "classifier"), ("3", "100 %"), ("6", BASELINE)} < rows
    for each in made:
        assert each.status == "embedded" and each.details.form == "scenes"
        assert each.data.name == "moving scenes, 64 units"
    filled = [cell for cell in tables.cells("middle_out", made) if cell.ours is not None]
    assert {cell.table for cell in filled} == {"2", "3", "4", "5", "7"}


def test_one_measurement_stands_in_all_tables_that_have_it(made):
    found = {(r.what.table, r.what.row): r for r in made}

    def alike(*places):
        each = [found[place].details.cider_d for place in places]
        assert all(one == each[0] for one in each)

    alike(("2", f"oracle: {MIDDLE_OUT}"), ("5", MIDDLE_OUT), ("3", "100 %"))
    alike(("2", f"oracle: {BASELINE}"), ("5", WITH_WORD))
    alike(("2", MIDDLE_OUT), ("3", "classifier"))
    alike(("2", f"{BASELINE} + Self-Attention"), ("7", "Dual Self-Attention"))


def test_table_3_s_ratio_is_the_paper_s_of_the_classifier_s_accuracy(made):
    rows = {r.what.row: r.values for r in made if r.what.table == "3"}
    wrong = 100 - rows["classifier"]["accuracy"]
    assert rows["classifier"]["sampling ratio"] == 100 and rows["100 %"]["sampling ratio"] == 0
    for row, wanted in (("50 %", 50), ("75 %", 75)):
        if 100 - wrong < wanted:
            assert rows[row]["sampling ratio"] == pytest.approx(100 * (100 - wanted) / wrong)
        else:
            assert row not in rows
    # the paper's own numbers, by the same formula
    for cell in papers.load("middle_out").table("3").cells:
        if cell.column == "sampling ratio" and cell.row in ("50 %", "75 %"):
            wanted = int(cell.row[:2])
            assert round(100 * (100 - wanted) / (100 - 31.64), 2) == cell.value


@given(st.integers(1, 60), st.integers(0, 9), st.data())
def test_mixed_words_are_the_classifier_s_or_the_image_s_own(count, seed, data):
    own = dict.fromkeys(range(count), "own")
    hits = data.draw(st.integers(0, count - 1))
    predicted = {i: "own" if i < hits else "predicted" for i in range(count)}
    right = hits / count
    wanted = data.draw(st.floats(right, 1, exclude_min=True))
    given_words, share = mixed(predicted, own, right, wanted, seed)
    assert list(given_words) == list(own) and 0 <= share <= 1
    assert all(word in (own[i], predicted[i]) for i, word in given_words.items())
    # the mean accuracy over draws is the wanted one
    assert share * right + (1 - share) == pytest.approx(wanted)
    assert (given_words == own) or share > 0
    more, _ = mixed(predicted, own, right, (wanted + right) / 2, seed)
    assert {i for i in own if more[i] == "own"} <= {i for i in own if given_words[i] == "own"}


def test_pairs_are_of_different_words_and_each_image_is_in_one_at_most():
    words = choose(motion.make(seed=1, train=40, val=4, test=40))
    split = words.data.splits["test"]
    pairs = pairs_of(words, split)
    flat = [image_id for pair in pairs for image_id in pair]
    assert len(set(flat)) == len(flat) and len(pairs) > 10
    assert all(words.of_image[a] != words.of_image[b] for a, b in pairs)
    assert pairs_of(words, split, 3) == pairs[:3]


def test_what_a_model_learns_is_its_caption_in_its_own_order():
    words = choose(DATA)
    train = words.data.splits["train"]
    assert learning(words, MODELS[BASELINE], 8) is words.data
    outwards = learning(words, MODELS[MIDDLE_OUT], 8).splits["train"].targets
    for image_id, captions in train.references.items():
        assert outwards[image_id] == [words.encode(image_id, text, 7) for text in captions]
    given_words = learning(words, MODELS[WITH_WORD], 8)
    assert given_words.fingerprint != words.data.fingerprint
    for part in given_words.splits.values():
        for image_id in part.image_ids:
            ids = part.store.features(image_id)[:, -1]
            assert set(ids) == {words.id_of(words.of_image[image_id])}


@dataclass(frozen=True)
class Obedient(Trained):
    """Captions that are a reference of the image whose word is given, or of its neighbour."""

    neighbour: bool = False

    @cached_property
    def _other(self):
        pairs = pairs_of(self.words, self.split)
        return {i: j for pair in pairs for i, j in (pair, pair[::-1])}

    def captions(self, given=None, split=None, grid=False):
        assert split.store.features(split.image_ids[0]).shape[0] >= 8  # two clips
        whose = {i: self._other[i] if self.neighbour else i for i in given}
        return {i: [self.split.references[j][0]] for i, j in whose.items()}


def obedient(neighbour):
    words = choose(motion.make(seed=1, train=20, val=4, test=30))
    fields = (None, words, None, "row", 0, "key", "embedded", "words", 8, {}, neighbour)
    return control(Obedient(*fields), record(MiddleOut), "row")


def test_control_tells_who_follows_the_word_from_who_does_not():
    does, does_not = obedient(False), obedient(True)
    assert does.values["follows the word"] == 100
    assert does_not.values["follows the word"] == 0
    assert does.values["has the word"] > does_not.values["has the word"]
    assert does.n == len(does.details.follows)


def test_the_classifier_goes_on_where_it_was_stopped(small, place, tmp_path, monkeypatch):
    words = choose(DATA)
    whole = middle_word_classifier.trained(words, 6, small.training.classifier, 0, place)
    accuracy, calls = middle_word_classifier.accuracy, []

    def stop(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return accuracy(*arguments)

    elsewhere = Place(None, tmp_path / "elsewhere")
    with monkeypatch.context() as patch:
        patch.setattr(middle_word_classifier, "accuracy", stop)
        with pytest.raises(KeyboardInterrupt):
            middle_word_classifier.trained(words, 6, small.training.classifier, 0, elsewhere)
    again = middle_word_classifier.trained(words, 6, small.training.classifier, 0, elsewhere)
    for name, weights in whole.state_dict().items():
        assert torch.equal(weights, again.state_dict()[name]), name


def test_captions_that_are_shown_have_the_word_that_they_began_with(made):
    (ours,) = [r for r in made if (r.what.table, r.what.row) == ("2", MIDDLE_OUT)]
    examples = ours.details.examples
    assert examples and all(e.word in e.caption.split() for e in examples)
    controlled = [r for r in made if r.what.table == "6"]
    assert len({len(r.details.pairs) for r in controlled}) == 1
    assert all(len(pair) == 2 for r in controlled for pair in r.details.pairs)


def test_a_page_can_be_made_of_the_records(made):
    files = report_of(made)
    assert "METEOR" in files["README.md"]
    for name in ("2", "3", "4", "5", "6", "7"):
        assert "embedded" in files[f"tables/table-middle-out-{name}-1.md"]
    assert "tables/middle_out-6-captions-scenes.md" in files


@pytest.fixture(scope="module")
def checkpoint(small, tmp_path_factory):
    """The folder of a middle-out model, trained on generated scenes."""
    of_scenes = replace(small, load=lambda _: scenes.make(seed=0, train=12, val=2, test=4))
    place = Place(None, tmp_path_factory.mktemp("work"))
    experiment = replace(middle_out.VIDEO_CAPTIONS, forms={"scenes": of_scenes})
    run = next(r for r in experiment.runs("scenes", place, [0]) if r.row == MIDDLE_OUT)
    words = middle_out.with_middle_words(run)
    middle_out.train(run, words)
    (config,) = place.work.glob("*/config.json")
    return config.parent, words


@pytest.mark.parametrize("word", [None, "spinning"])
def test_a_user_s_word_is_in_every_caption_else_the_classifier_s(
    word, checkpoint, tmp_path, capsys
):
    folder, words = checkpoint
    out = tmp_path / "captions.json"
    command = ["caption", "--scenes", "12,2,4", "--checkpoint", str(folder), "--out", str(out)]
    command += ["--max-length", "8"]
    assert main([*command, *(["--middle-word", word] if word else [])]) == 0
    captions = [entry["caption"].split() for entry in json.loads(out.read_text())]
    begun = [word] if word else words.candidates
    assert len(captions) == 4 and all(set(caption) & set(begun) for caption in captions)


def test_a_word_that_no_caption_can_begin_with_is_named(checkpoint, tmp_path, capsys):
    folder, _ = checkpoint
    command = ["caption", "--scenes", "12,2,4", "--checkpoint", str(folder), "--max-length", "8"]
    command += ["--out", str(tmp_path / "captions.json")]
    for word, read in (("flying", "flying"), ("%s", "s")):
        assert main([*command, "--middle-word", word]) == 2
        said = f"error: --middle-word {word}: middle word '{read}': not in the vocabulary of"
        assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    with pytest.raises(InputError, match="a middle word for a model that begins on the left"):
        model = sequence_to_sequence(6, 2, d_embedding=2, hidden_size=4)
        captioners.search(model, torch.randn(1, 2, 2), beam_size=1, max_length=4, middle=4)
