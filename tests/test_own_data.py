"""Own pictures and captions: what is read from which file, and what becomes of it."""

import csv
import io
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from benchmarks import files
from benchmarks.data import caption_files, karpathy, own_data
from benchmarks.data.features import ShardWriter
from benchmarks.data.photographs import Photographs
from benchmarks.data.vocabulary import tokenise
from benchmarks.errors import InputError
from benchmarks.run_folder import load_captioner
from benchmarks.scoring import java, quality
from benchmarks.scoring.caption import caption
from benchmarks.verify.tolerances import METRIC
from tests.support import tolerances
from tests.support.runs import main

TEXT = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], include_characters="\n\t"), max_size=20
)
NAMES = st.sampled_from(["a.png", "b c.jpg", "ç.webp", "d.png"])
ROWS = st.lists(st.tuples(NAMES, TEXT), min_size=1, max_size=8)


def as_csv(rows, header=("image", "caption"), delimiter=",", bom=False):
    buffer = io.StringIO()
    csv.writer(buffer, delimiter=delimiter).writerows([header, *rows])
    return buffer.getvalue().encode("utf-8-sig" if bom else "utf-8")


def by_image(rows):
    grouped = {}
    for image, text in rows:
        grouped.setdefault(image, []).append(text)
    return grouped


def as_coco(rows):
    names = list(dict.fromkeys(image for image, _ in rows))
    images = [{"id": i, "file_name": name} for i, name in enumerate(names)]
    annotations = [{"image_id": names.index(image), "caption": text} for image, text in rows]
    return {"images": images, "annotations": annotations}


def written(folder, content, name="captions.json"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


@given(rows=ROWS, delimiter=st.sampled_from(",;\t"), bom=st.booleans())
def test_csv_and_json_of_every_layout_hold_the_same_captions(
    tmp_path_factory, rows, delimiter, bom
):
    folder = tmp_path_factory.mktemp("captions")
    files = [
        written(folder, as_csv(rows, ("Caption ", "FileName")[::-1], delimiter, bom), "a.csv"),
        written(folder, [{"image": i, "caption": c} for i, c in rows], "b.json"),
        written(folder, [{"file": f"x/{i}", "captions": [c]} for i, c in rows], "c.json"),
        written(folder, by_image(rows), "d.json"),
        written(folder, as_coco(rows), "e.json"),
    ]
    expected = by_image((image, " ".join(text.split())) for image, text in rows)
    for path in files:
        entries = caption_files.read(path)
        assert by_image((e.image, e.caption) for e in entries) == expected, path.name
        assert {entry.split for entry in entries} == {None}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.txt", b"a.png a dog", r"x\.txt: expected captions in a \.csv, \.tsv or \.json file"),
        ("x.csv", b"image,words\na.png,x", r"line 1 names no column for the caption .* words"),
        ("x.csv", b"", r"line 1 names no column for the image .*, but nothing"),
        ("x.csv", b"image,file,caption\n", "2 columns for the image, expected one"),
        ("x.csv", b"image,caption\n", "no captions, expected at least one"),
        ("x.csv", b"image,caption\na.png,one, two", "line 2 has 3 cells, expected 2: are captions"),
        ("x.csv", b'image,caption\na.png,"one', "line 2: unexpected end"),
        ("x.csv", b"image,caption\na.png,\xff", "not UTF-8 text at byte 20"),
        ("x.csv", b"image,caption\n ,a dog", "line 2: names no image"),
        ("x.json", [3], r"\[0\] is no object"),
        ("x.json", [{"image": "a.png"}], r"\[0\] has no caption"),
        ("x.json", [{"caption": "a"}], r"\[0\] has no image"),
        ("x.json", {"a.png": [3]}, "'a.png': the caption is 3, expected text"),
        ("x.json", {"a.png": ["\ud800"]}, "the caption has half a surrogate pair"),
        ("x.json", 3, "expected a list of"),
        ("x.json", [], "no captions"),
        ("x.json", {"annotations": []}, 'no list "images"'),
        (
            "x.json",
            {"images": [{"id": 1, "file_name": "a"}], "annotations": [{"image_id": 2}]},
            r"annotations\[0\]: image_id 2 is not among the images",
        ),
    ],
)
def test_a_captions_file_of_another_layout_is_named_with_the_place(
    tmp_path, name, content, message
):
    path = written(tmp_path, content, name)
    with pytest.raises(InputError, match=message) as error:
        caption_files.read(path)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def pictures_in(folder, names):
    folder.mkdir(exist_ok=True)
    for i, name in enumerate(names):
        pixels = np.random.default_rng(i).integers(0, 256, (9, 9, 3), np.uint8)
        Image.fromarray(pixels).save(folder / name)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A hundred small pictures."""
    return pictures_in(tmp_path_factory.mktemp("own") / "images", [f"{i}.png" for i in range(100)])


def entries(rows):
    return [caption_files.Entry(f"line {i}", *row) for i, row in enumerate(rows, 2)]


@given(
    count=st.integers(3, 100),
    val=st.integers(0, 40),
    test=st.integers(0, 40),
    seed=st.integers(0, 99),
    random=st.randoms(use_true_random=False),
)
def test_splits_have_their_shares_by_the_seed_and_not_by_the_order(
    folder, count, val, test, seed, random
):
    rows = [(f"{i}.png", f"a dog {j}") for i in range(count) for j in range(2)]
    shares = (100 - val - test, val, test)
    made = []
    for chosen in (seed, seed, seed + 1):
        places = own_data._places(entries(rows), shares, chosen)
        made.append(places)
        random.shuffle(rows)
    assert made[0] == made[1]
    counts = {name: list(made[0].values()).count(name) for name in own_data.SPLITS}
    assert counts["val"] == (max(1, count * val // 100) if val else 0)
    assert counts["test"] == (max(1, count * test // 100) if test else 0)
    assert sum(counts.values()) == count and counts["train"] >= 1
    if count == 100 and val + test >= 10:
        assert made[0] != made[2], "another seed, another split"


def test_a_split_column_is_kept_and_its_contradictions_are_named(folder):
    rows = [("0.png", "a dog", "train"), ("1.png", "a cat", "val"), ("0.png", "a hound", "train")]
    layout, _ = own_data.make(Photographs([folder]), entries(rows), name="own", min_count=1)
    assert [(i["filename"], i["split"]) for i in layout["images"]] == [
        ("0.png", "train"),
        ("1.png", "val"),
    ]
    for wrong, message in (
        ([*rows, ("1.png", "a", "train")], r"line 5: 1\.png is in val and train"),
        ([*rows, ("2.png", "a", "dev")], "line 5: the split is 'dev', expected one of train, val"),
        ([*rows, ("2.png", "a")], "line 5: the split is none, though others have one"),
        (rows[1:2], "no image is in the split 'train'"),
    ):
        with pytest.raises(InputError, match=message):
            own_data.make(Photographs([folder]), entries(wrong), name="own")


def test_everything_bad_is_counted_and_named_or_left_out(tmp_path, capsys):
    images = pictures_in(tmp_path / "images", ["a.png", "b.png", "cut.png", "alone.png"])
    (images / "cut.png").write_bytes((images / "cut.png").read_bytes()[:60])
    rows = [
        *(("a.png", "A dog."), ("a.png", "A dog."), ("a.png", "Two dogs."), ("a.png", "...")),
        *(("b.png", ""), ("cut.png", "a cat"), ("gone.png", "x"), ("gone2.png", "y")),
    ]
    captions = written(tmp_path, as_csv(rows), "captions.csv")
    out = tmp_path / "out"
    words = ["dataset", "--images", images, "--captions", captions, "--out", out]
    assert main(*words) == 2
    error = capsys.readouterr().err
    assert "2 images that are not among the pictures: gone.png, gone2.png" in error
    assert "--skip-bad" in error and error.count("\n") == 1
    assert not out.exists()
    options = ["--skip-bad", "--split-percent", "100,0,0", "--min-count", 1, "--name", "own"]
    assert main(*words, *options) == 0
    printed = capsys.readouterr()
    for said in (
        "left out 2 images that are not among the pictures: gone.png, gone2.png",
        "left out 2 captions without a word: line 5, line 6",
        "left out 1 pictures that cannot be read",
        "cut.png: not a whole photograph",
        "1 captions stand twice for one image",
        "3 pictures have no caption and are left out: alone.png, b.png, cut.png",
    ):
        assert said in printed.err
    assert "1 train images; 4 words stand 1 times or more in train" in printed.out
    (image,) = json.loads((out / "dataset_own.json").read_text())["images"]
    assert image["sentences"] == [{"raw": "A dog."}, {"raw": "Two dogs."}]
    for left in (rows[3:4], rows[5:]):
        captions = written(tmp_path, as_csv(left), "captions.csv")
        words[4] = captions
        assert main(*words, "--skip-bad", "--out", tmp_path / "none") == 2
        assert "no image with a caption is left" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--split-percent", "80,20"], "'80,20', expected per cent of train, val and test"),
        (["--split-percent", "90,20,-10"], "expected per cent"),
        (["--split-percent", "0,50,50"], "no image is in the split 'train'"),
        (["--min-count", "0"], "--min-count is 0"),
        (["--split-percent", "100,0,0", "--min-count", "99"], "no token stands 99 times in train"),
        (["--name", "../../escaped"], "--name '../../escaped': expected a name"),
        (["--name", ""], "--name '': expected a name"),
        (["--out", "data.json"], "--out data.json: expected a folder"),
        (["--tokeniser", "syllables"], "invalid choice: 'syllables'"),
        (["--captions", "none.csv"], "none.csv: no such file"),
        (["--images", "nowhere"], "nowhere: no such file, expected a zip file or a folder"),
    ],
)
def test_bad_options_exit_2_with_one_line_and_write_nothing(
    folder, tmp_path, capsys, options, message
):
    captions = written(tmp_path, {"0.png": "a dog", "1.png": "a cat"})
    words = ["dataset", "--images", folder, "--captions", captions, "--out", tmp_path / "out"]
    assert main(*words, *options) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def features_of(path, out):
    """Made-up features of a data set's images, as the features command would sign them."""
    photographs = karpathy.read_photographs(path)
    writer = ShardWriter(out, {"photographs": karpathy.sources(photographs)}, 4)
    for photograph in photographs:
        generator = np.random.default_rng(photograph.image_id)
        writer.add(photograph.image_id, generator.standard_normal((3, 4)))
    writer.flush()
    return out


CHINESE = ["一只狗在跑。", "两只猫在睡觉。", "一只鸟在飞。", "一个人在骑马。"]
SIZES = [
    *("--d-model", 32, "--d-ff", 32, "--num-heads", 2),
    *("--num-encoder-layers", 1, "--num-decoder-layers", 1),
]


@pytest.fixture(scope="module")
def chinese(folder, tmp_path_factory):
    """Four pictures captioned without spaces, by characters, and a run that has learnt them."""
    place = tmp_path_factory.mktemp("chinese")
    captions = written(place, {f"{i}.png": text for i, text in enumerate(CHINESE)})
    options = ["--tokeniser", "characters", "--min-count", 1, "--split-percent", "100,0,0"]
    words = ["--images", folder, "--captions", captions, "--out", place, "--name", "zh"]
    assert main("dataset", *words, *options) == 0
    data = place / "dataset_zh.json"
    features = features_of(data, place / "features")
    words = ["--karpathy", data, "--features", features, "--preset", "few", *SIZES]
    assert main("train", *words, "--learning-rate", 5e-3, "--out", place / "run") == 0
    return data, features, place / "run"


def test_any_language_s_tokens_go_from_the_data_to_the_captions_and_their_scores(chinese):
    path, features, run = chinese
    data = karpathy.load(path, features)
    model, vocabulary = load_captioner(run)
    assert vocabulary == data.vocabulary
    assert vocabulary.tokeniser == "characters" and "狗" in vocabulary.words
    split = data.splits["train"]
    captions = caption(model, vocabulary, split)
    assert list(captions.values()) == [text.rstrip("。") for text in CHINESE]
    scores = quality.score(
        split.references, captions, tokeniser="characters", metrics=["CIDEr-D", "B4"]
    )
    assert scores.values["CIDEr-D"] == pytest.approx(10, abs=METRIC)
    by_words = quality.score(split.references, captions, tokeniser="words", metrics=["B4"])
    assert by_words.values["B4"] < scores.values["B4"], "a sentence is one word without spaces"


def unavailable(*_):
    raise java.UnavailableError("slow, and not what is tested")


def test_evaluate_scores_by_the_vocabulary_s_own_tokens(chinese, tmp_path, monkeypatch, capsys):
    path, features, run = chinese
    monkeypatch.setattr("benchmarks.records.LOCAL", tmp_path)
    for scorer in ("meteor", "spice"):
        monkeypatch.setattr(java, scorer, unavailable)
    words = ["--karpathy", path, "--features", features, "--checkpoint", run, "--split", "train"]
    assert main("evaluate", *words, "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert "+characters+" in record["signature"]
    assert record["values"]["CIDEr-D"] == pytest.approx(1000, **tolerances.PERCENT)
    layout = json.loads(path.read_text())
    del layout["tokeniser"]
    other = written(tmp_path, layout, "dataset_words.json")
    words[1] = other
    assert main("evaluate", *words) == 2
    assert "a vocabulary of characters, but words is captioned in words" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokeniser": "syllables"}, "tokeniser is 'syllables', expected one of words, characters"),
        ({"tokeniser": 3}, "expected an integer min_count and a tokeniser's name"),
        ({"min_count": 0}, "min_count is 0, expected at least 1"),
        ({"min_count": "2"}, "expected an integer min_count"),
    ],
)
def test_a_data_set_with_an_unknown_tokeniser_or_count_is_named(chinese, tmp_path, change, message):
    path, features, _ = chinese
    changed = written(tmp_path, {**json.loads(path.read_text()), **change}, "dataset_x.json")
    with pytest.raises(InputError, match=rf"dataset_x\.json: {message}"):
        karpathy.load(changed, features)


def test_a_checkpoint_s_vocabulary_is_kept_and_what_it_does_not_know_is_counted(
    folder, chinese, tmp_path, capsys
):
    _, _, run = chinese

    def train_on(captions, tokens, option="--vocabulary-of"):
        place = tmp_path / f"{tokens} {option}" / str(len(captions[0]))
        place.mkdir(parents=True)
        file = written(place, {f"{i}.png": text for i, text in enumerate(captions)})
        options = ["--tokeniser", tokens, "--min-count", 1, "--split-percent", "100,0,0"]
        words = ["--images", folder, "--captions", file, "--out", place, "--name", "more"]
        assert main("dataset", *words, *options) == 0
        data = place / "dataset_more.json"
        words = ["--karpathy", data, "--features", features_of(data, place / "features")]
        options = ["--preset", "few", *SIZES, "--epochs", 1, option, run]
        capsys.readouterr()
        return place / "run", main("train", *words, *options, "--out", place / "run")

    out, code = train_on(["一只狗在火星", "一只猫在火星"], "characters")
    assert code == 0
    error = capsys.readouterr().err
    assert "does not know 4 of 12 words to train on, 2 different, most often 火, 星" in error
    model, vocabulary = load_captioner(out)
    assert vocabulary == load_captioner(run)[1]
    assert model.configuration.vocabulary_size == len(vocabulary)
    out, code = train_on(["abc", "def"], "characters")
    assert code == 2 and not out.exists()
    assert "its vocabulary has none of the words of more" in capsys.readouterr().err
    refusal = "a vocabulary of characters, but more is captioned in words"
    for option in ("--vocabulary-of", "--initial"):
        out, code = train_on(["a dog", "a cat"], "words", option)
        assert code == 2 and not out.exists()
        assert refusal in capsys.readouterr().err


def test_captions_in_words_are_tokenised_as_ever(folder):
    rows = [("0.png", "Ein großer Hund, der läuft!"), ("1.png", "हिन्दी में")]
    made, said = own_data.make(
        Photographs([folder]), entries(rows), name="own", min_count=1, shares=(100, 0, 0)
    )
    words = {word for _, text in rows for word in tokenise(text)}
    assert f"2 train images; {len(words)} words stand 1 times" in own_data.summary(made)
    (line,) = said
    assert line.startswith("98 pictures have no caption")


@pytest.mark.parametrize("there", [False, True])
def test_scenes_that_fail_leave_nothing(tmp_path, monkeypatch, there):
    out = tmp_path / "scenes"
    if there:
        assert main("scenes", "--num-images", 1, "--out", out) == 0
    before = sorted(tmp_path.rglob("*"))
    synced = iter(range(2))

    def full(descriptor):
        if next(synced, None) is None:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    assert main("scenes", "--num-images", 4, "--out", out) == 2
    assert sorted(tmp_path.rglob("*")) == before


def test_generated_scenes_are_pictures_and_captions_to_try(tmp_path, capsys):
    words = ["scenes", "--num-images", 3, "--num-references", 2, "--first", 7, "--out"]
    out, again = tmp_path / "scenes", tmp_path / "again"
    assert main(*words, out) == main(*words, again) == 0
    found = caption_files.read(out / "captions.csv")
    assert len(found) == 6
    assert {entry.image for entry in found} == set(Photographs([out]))
    first, second = ({p.name: p.read_bytes() for p in place.iterdir()} for place in (out, again))
    assert first == second
    bad = {"--num-images": (0, 10**12), "--num-references": (0, 10**9), "--first": (-1,)}
    for option, value in ((option, value) for option, values in bad.items() for value in values):
        assert main("scenes", option, value, "--out", tmp_path / "bad") == 2
        assert f"{option}: {value}, expected at least" in capsys.readouterr().err
    assert not (tmp_path / "bad").exists()
