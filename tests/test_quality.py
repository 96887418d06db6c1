"""Scores of raw captions: the oracle's on the same tokens, Java's, and what is missing and why."""

import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pycocoevalcap.meteor.meteor import Meteor
from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

from benchmarks.data.vocabulary import tokenise
from benchmarks.errors import InputError
from benchmarks.scoring import java, quality
from benchmarks.verify.tolerances import METRIC, error
from reference import cider, metrics

HAS_JAVA = java.has_java()
NEEDS_JAVA = "needs Java, and no java is on the PATH or in JAVA_HOME"

REFERENCES = {
    391895: ["A man with a red helmet on a small moped.", "Man riding a motor bike, on a road!"],
    60623: ["A young girl inhales with the intent of blowing out a candle.", ""],
    7: ["A woman's \"t-shirt\" isn't (quite) red; it costs $5.", "Ein Café: naïve façade …"],
}
PREDICTIONS = {
    7: "a woman in a red t-shirt",
    391895: "a man riding a motorcycle down a dirt road",
    60623: "",
}


@pytest.fixture
def no_java(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)


@pytest.fixture
def stand_in(monkeypatch, tmp_path):
    """Put a program of our own in Java's place, to see what we do with what Java may do."""

    def install(body):
        home = tmp_path / "home"
        path = home / "bin" / "java"
        path.parent.mkdir(parents=True)
        path.write_text(f"#!{sys.executable}\nimport json, sys\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("JAVA_HOME", str(home))

    return install


@pytest.fixture
def started(monkeypatch):
    """Every process that is started: other tests' helpers may live beside ours."""
    processes = []

    class Listed(subprocess.Popen):
        def __init__(self, *args, **kwargs):
            processes.append(self)
            super().__init__(*args, **kwargs)

    monkeypatch.setattr(subprocess, "Popen", Listed)
    return processes


def files_of_the_library():
    return {path for path in java.FOLDER.rglob("*") if "__pycache__" not in path.parts}


# the oracle's scores on the same tokens

WORDS = st.sampled_from(["A", "man", "dog,", "T-shirt", "rides.", "!", "unseen"])
SENTENCES = st.lists(WORDS, max_size=8).map(" ".join)


@given(
    st.dictionaries(
        st.integers(0, 999),
        st.tuples(SENTENCES, st.lists(SENTENCES, min_size=1, max_size=3)),
        min_size=1,
        max_size=5,
    )
)
def test_scores_on_words_are_the_oracles_on_the_same_tokens(corpus):
    references = {i: [*captions, "a man"] for i, (_, captions) in corpus.items()}
    predictions = {i: caption for i, (caption, _) in reversed(corpus.items())}
    asked = (*quality.BLEU, "ROUGE-L", "CIDEr-D")
    scores = quality.score(references, predictions, tokeniser="words", metrics=asked)

    ids = list(references)
    candidates = [tokenise(predictions[i]) for i in ids]
    targets = [[tokenise(caption) for caption in references[i]] for i in ids]
    bleu, sentence_bleu = (
        metrics.bleu(candidates, targets),
        [metrics.bleu([c], [t]) for c, t in zip(candidates, targets, strict=True)],
    )
    rouge_l, cider_d = metrics.rouge_l(candidates, targets), cider.cider_d(candidates, targets)
    assert list(scores.values) == list(asked) and not scores.missing
    values = np.array([*bleu, rouge_l.mean(), cider_d.mean()])
    assert error(list(scores.values.values()), values) <= METRIC
    per_image = np.column_stack([np.array(sentence_bleu), rouge_l, cider_d])
    for metric, expected in zip(asked, per_image.T, strict=True):
        assert list(scores.per_image[metric]) == ids
        assert error(list(scores.per_image[metric].values()), expected) <= METRIC


def test_only_the_metrics_that_are_asked_for_are_given():
    scores = quality.score(REFERENCES, PREDICTIONS, tokeniser="words", metrics=["B4"])
    assert list(scores.values) == ["B4"] and not scores.missing
    assert scores.images == 3 and set(scores.per_image["B4"]) == set(REFERENCES)


def test_the_signature_says_tokeniser_documents_and_absence_of_end_tokens():
    scores = quality.score(REFERENCES, PREDICTIONS, tokeniser="words", metrics=["CIDEr-D"])
    assert scores.signature == "NO<EOS>_wInit+Cider-D[n4,s6.0]+df[3]+words+pycocoevalcap1.2"
    assert quality.cider_signature(3, "ptb") != scores.signature
    without = quality.score(REFERENCES, PREDICTIONS, tokeniser="words", metrics=["B1"])
    assert without.signature is None


# bad input


@pytest.mark.parametrize(
    ("references", "predictions", "options", "message"),
    [
        ({1: ["a"]}, {1: "a"}, {"tokeniser": "wrods"}, "'wrods', expected one of ptb, words, char"),
        ({1: ["a"]}, {1: "a"}, {"metrics": ["B5"]}, "'B5' given, expected some of B1, B2"),
        ({1: ["a"]}, {1: "a"}, {"metrics": []}, "none given, expected some of B1"),
        ({1: ["a"]}, {}, {}, "predictions: none given"),
        ({}, {}, {}, "predictions: none given"),
        ({1: ["a"], 2: []}, {1: "a", 2: "b"}, {}, "image_id 2 has none, expected at least one"),
        ({1: ["a"]}, {1: "a", 5: "b", 6: "c"}, {}, "image_id 5 has no references (2 of 3 pred"),
        ({1: ["a"], 2: ["b"]}, {1: "a"}, {}, "image_id 2 has no prediction (1 of 2 images"),
        ({1: ["..."]}, {1: "a"}, {}, "no word in any of them after tokenising"),
    ],
)
def test_bad_input_is_named_in_one_line(references, predictions, options, message):
    with pytest.raises(InputError) as caught:
        quality.score(references, predictions, **{"tokeniser": "words", **options})
    assert message in str(caught.value) and "\n" not in str(caught.value)


# without Java


@pytest.mark.usefixtures("no_java")
def test_without_java_the_ptb_tokeniser_leaves_every_score_missing_and_says_why():
    scores = quality.score(REFERENCES, PREDICTIONS)
    assert not scores.values and not scores.per_image
    assert list(scores.missing) == list(quality.METRICS)
    for why in scores.missing.values():
        assert why.startswith(f"the PTB tokeniser {NEEDS_JAVA}") and "words" in why


@pytest.mark.usefixtures("no_java")
def test_without_java_only_meteor_and_spice_are_missing_on_words():
    scores = quality.score(REFERENCES, PREDICTIONS, tokeniser="words")
    assert set(scores.values) == set(quality.METRICS) - {"METEOR", "SPICE"}
    assert scores.missing["METEOR"] == f"METEOR {NEEDS_JAVA}"
    assert scores.missing["SPICE"].startswith(f"SPICE {NEEDS_JAVA}")
    assert ("CoreNLP" in scores.missing["SPICE"]) == bool(java.missing_models())


@pytest.mark.usefixtures("no_java", "models")
def test_spice_without_java_alone_asks_for_no_models():
    with pytest.raises(java.UnavailableError, match=f"SPICE {NEEDS_JAVA}$"):
        java.spice(["a"], [["b"]])


def test_what_is_available_is_java_that_runs_and_the_models(stand_in, models, tmp_path):
    stand_in("")
    assert java.available() == ("Java", "SPICE models")
    (tmp_path / "library" / "spice" / "lib" / java.SPICE_MODELS[1]).unlink()
    assert java.available() == ("Java",)
    # as systems without Java have one that only says where to get it
    (tmp_path / "home" / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    java._starts.cache_clear()
    assert java.available() == ()
    (tmp_path / "home" / "bin" / "java").unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(tmp_path))
        assert java.available() == ()


def test_java_home_comes_before_the_path(stand_in, monkeypatch, tmp_path):
    stand_in("")
    assert java.find_java("METEOR") == str(tmp_path / "home" / "bin" / "java")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("PATH", str(tmp_path / "home" / "bin"))
    assert java.find_java("METEOR") == str(tmp_path / "home" / "bin" / "java")


# with Java; without, the reason


def test_ptb_tokens_are_the_published_ones():
    captions = [caption for refs in REFERENCES.values() for caption in refs]
    if not HAS_JAVA:
        with pytest.raises(java.UnavailableError, match=NEEDS_JAVA):
            java.ptb_tokenise(captions)
        return
    published = PTBTokenizer().tokenize({0: [{"caption": caption} for caption in captions]})[0]
    assert java.ptb_tokenise(captions) == published
    assert published[0] == "a man with a red helmet on a small moped"


def test_a_caption_stays_in_its_place_whatever_ends_lines_before_it():
    ends = ["\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]
    captions = [
        text for i, end in enumerate(ends) for text in (f"red{end}dog{end}", f"Caption {i}.", "")
    ]
    if not HAS_JAVA:
        with pytest.raises(java.UnavailableError, match=NEEDS_JAVA):
            java.ptb_tokenise(captions)
        return
    tokens = java.ptb_tokenise(captions)
    assert tokens == [t for i in range(len(ends)) for t in ("red dog", f"caption {i}", "")]


def meteor_of(candidates, references):
    with java.meteor(candidates, references) as running:
        return running.result()


def test_meteor_is_the_published_one_and_forgets_what_it_was_asked(monkeypatch, started):
    """The published wrapper asks the program that was asked before: it takes seconds to start."""
    candidates = ["a man rides a bike", "", "dogs run", "a red car"]
    references = [["a man on a bike", "the man rides"], ["a b"], [""], ["a ||| red car"]]
    if not HAS_JAVA:
        with pytest.raises(java.UnavailableError, match=NEEDS_JAVA), java.meteor([], []):
            pass
        return
    with java.meteor_kept():
        meteor_of(["dogs run", "a"], [["a dog"], ["b"]])
        corpus, each = meteor_of(candidates, references)
        (program,) = started
        pipes = {"stdin": program.stdin.buffer, "stdout": program.stdout.buffer}
        same = SimpleNamespace(**pipes, kill=lambda: None, wait=lambda: None)

        def asked_before(command, **_):
            assert command[1:] == program.args[1:]
            return same

        monkeypatch.setattr(subprocess, "Popen", asked_before)
        gts = {i: [r.replace("|||", "") for r in refs] for i, refs in enumerate(references)}
        published = Meteor().compute_score(gts, {i: [c] for i, c in enumerate(candidates)})
    assert (corpus, each) == published
    assert each[0] > 0 and each[1] == each[2] == 0
    assert program.returncode is not None


METEOR = """
for line in sys.stdin:
    asked, *rest = line.split(" ||| ")
    print(len(line) if asked == "SCORE" else "\\n".join(["0.5"] * (len(rest) + 1)), flush=True)
"""


def test_one_meteor_after_the_other_is_the_same_program_until_it_fell_over(stand_in, started):
    stand_in(METEOR)
    asked = ["a man rides"], [["a man rides a bike"]]
    with java.meteor_kept():
        assert meteor_of(*asked) == meteor_of(*asked) and len(started) == 1
        assert started[0].poll() is None
        started[0].kill()
        started[0].wait()
        meteor_of(*asked)
        assert len(started) == 2 and started[1].poll() is None
        with pytest.raises(KeyboardInterrupt), java.meteor(*asked):
            raise KeyboardInterrupt
        assert all(process.returncode is not None for process in started)
        meteor_of(*asked)
        assert started[2].poll() is None
    assert started[2].returncode is not None, "one that waits ends with the block"
    meteor_of(*asked)
    assert started[3].returncode is not None, "no other waits"


@settings(max_examples=5)
@given(st.lists(st.text(max_size=20), min_size=1, max_size=20))
def test_any_text_is_tokenised_line_by_line(texts):
    captions = [text.encode(errors="ignore").decode() for text in texts]
    if not HAS_JAVA:
        with pytest.raises(java.UnavailableError, match=NEEDS_JAVA):
            java.ptb_tokenise(captions)
        return
    tokens = java.ptb_tokenise(captions)
    assert len(tokens) == len(captions) and not any("\n" in caption for caption in tokens)


def test_scoring_leaves_no_file_and_no_process_behind(tmp_path, monkeypatch, started):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = files_of_the_library()
    asked = [metric for metric in quality.METRICS if metric != "METEOR"]
    scores = quality.score(REFERENCES, PREDICTIONS, metrics=asked)
    assert set(scores.missing) == ({"SPICE"} if HAS_JAVA else set(asked))
    assert files_of_the_library() == before and not list(tmp_path.iterdir())
    # waited for, each of them
    assert len(started) == 2 * HAS_JAVA and all(p.returncode is not None for p in started)


def test_leaving_meteors_block_early_ends_its_process(started):
    with pytest.raises(KeyboardInterrupt if HAS_JAVA else java.UnavailableError):  # noqa: SIM117
        with java.meteor(["a man"] * 100_000, [["a dog"]] * 100_000):
            raise KeyboardInterrupt
    # waited for, each of them
    assert len(started) == HAS_JAVA and all(p.returncode is not None for p in started)


# what Java may do, by a stand-in for it


def test_a_tokeniser_that_fails_is_the_reason_given(stand_in):
    stand_in("sys.exit('noise\\nError: Could not reserve enough space')")
    scores = quality.score(REFERENCES, PREDICTIONS, metrics=["B1"])
    why = "the PTB tokeniser failed in Java (exit code 1): Error: Could not reserve enough space"
    assert scores.missing["B1"].startswith(why)


def test_a_tokeniser_that_loses_a_line_is_no_tokeniser(stand_in):
    stand_in("sys.stdout.writelines(list(sys.stdin)[1:])")
    with pytest.raises(java.UnavailableError, match="gave 1 lines for 2 captions"):
        java.ptb_tokenise(["a", "b"])


def test_meteor_that_dies_half_way_is_missing_and_the_rest_is_there(stand_in):
    stand_in("sys.stdin.readline(); sys.exit('out of memory')")
    scores = quality.score(REFERENCES, PREDICTIONS, tokeniser="words", metrics=["B1", "METEOR"])
    assert list(scores.values) == ["B1"]
    assert scores.missing == {"METEOR": "METEOR failed in Java (exit code 1): out of memory"}


def test_a_java_that_cannot_be_started_is_the_reason_given(stand_in, tmp_path):
    stand_in("")
    (tmp_path / "home" / "bin" / "java").write_text("no program")
    scores = quality.score(REFERENCES, PREDICTIONS, tokeniser="words", metrics=["B1", "METEOR"])
    assert scores.missing["METEOR"].startswith("METEOR cannot start")


SPICE = """
cases = json.load(open(sys.argv[4]))
f = lambda c: {value}
scores = [{"image_id": c["image_id"], "scores": {"All": {"f": f(c)}}} for c in reversed(cases)]
json.dump(scores, open(sys.argv[6], "w"))
"""


@pytest.fixture
def models(monkeypatch, tmp_path):
    lib = tmp_path / "library" / "spice" / "lib"
    lib.mkdir(parents=True)
    for jar in java.SPICE_MODELS:
        (lib / jar).touch()
    monkeypatch.setattr(java, "FOLDER", Path(tmp_path / "library"))


@pytest.mark.usefixtures("models")
def test_spice_is_read_from_its_programs_file_by_image(stand_in, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "home"))
    stand_in(SPICE.replace("{value}", "len(c['test'].split()) / 10 + len(c['refs'])"))
    scores = quality.score(REFERENCES, PREDICTIONS, tokeniser="words", metrics=["SPICE"])
    assert not scores.missing
    assert scores.per_image["SPICE"] == pytest.approx({391895: 2.9, 60623: 2.0, 7: 2.6}, abs=METRIC)
    assert scores.values["SPICE"] == pytest.approx(7.5 / 3, abs=METRIC)
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["bin"]


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize(
    ("body", "why"),
    [
        (SPICE.replace("{value}", "float('nan')"), "gave a score that is not a number"),
        ("sys.exit('Error: no memory')", "failed in Java (exit code 1): Error: no memory"),
    ],
)
def test_spice_that_fails_is_missing(stand_in, body, why):
    stand_in(body)
    scores = quality.score(REFERENCES, PREDICTIONS, tokeniser="words", metrics=["B1", "SPICE"])
    assert list(scores.values) == ["B1"] and scores.missing == {"SPICE": f"SPICE {why}"}


def test_without_its_models_spice_is_missing_and_nothing_is_downloaded(stand_in):
    stand_in("sys.exit('must not run')")
    before = files_of_the_library()
    installed = not java.missing_models()
    expected = "must not run" if installed else "SPICE needs the Stanford CoreNLP 3.6.0"
    with pytest.raises(java.UnavailableError, match=expected):
        java.spice(["a"], [["b"]])
    assert files_of_the_library() == before
