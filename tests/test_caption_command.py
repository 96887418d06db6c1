"""``captionbench caption PICTURE``: from pixels to captions, by a run that learnt 20 pictures."""

import csv
import io
import json
import re
import shutil
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from benchmarks import run_folder
from benchmarks.data import karpathy, pictures
from benchmarks.data.vocabulary import Vocabulary, tokenise
from benchmarks.run_folder import load_captioner
from benchmarks.scoring import quality
from benchmarks.scoring.caption import caption
from benchmarks.verify.tolerances import FLOAT16_SCORES, assert_close
from tests.support.pictures import encoded, huge
from tests.support.released_weights import end_to_end, released
from tests.support.runs import main, refused, untrained
from torch_impl.checkpoints.released import load_released
from torch_impl.decoding.search import beam_search
from torch_impl.layers.swin import SwinConfiguration
from torch_impl.models import EndToEnd, EndToEndConfiguration
from torch_impl.models.vision import BACKBONES, EfficientNetLite0, Swin, normalise

COUNT = 20


@pytest.fixture(scope="module", autouse=True)
def one_backbone():
    """The network that makes features is built once, not once a command."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(BACKBONES, EfficientNetLite0.name, cache(EfficientNetLite0))
        yield


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Pictures, their data set, features and a run on them, each by its command."""
    place = tmp_path_factory.mktemp("pixels")
    images, features = place / "images", place / "features"
    assert main("scenes", "--num-images", COUNT, "--num-references", 1, "--out", images) == 0
    options = ["--min-count", 1, "--split-percent", "100,0,0", "--out", place, "--name", "tiny"]
    captions = images / "captions.csv"
    assert main("dataset", "--images", images, "--captions", captions, *options) == 0
    data = ["--karpathy", place / "dataset_tiny.json"]
    assert main("features", *data, "--images", images, "--out", features) == 0
    words = [*data, "--features", features, "--preset", "few", "--out", place / "run"]
    assert main("train", *words) == 0
    return place


@pytest.fixture(scope="module")
def learnt(place):
    """The caption of each picture, by its name."""
    with (place / "images" / "captions.csv").open(newline="") as file:
        return {row["image"]: " ".join(tokenise(row["caption"])) for row in csv.DictReader(file)}


def captioned(place, capsys, *words):
    """What the command prints, and on stderr, about pictures of the run in ``place``."""
    capsys.readouterr()
    assert main("caption", *words, "--checkpoint", place / "run") == 0
    printed = capsys.readouterr()
    return printed.out, printed.err


def test_own_pictures_are_overfitted(place, learnt):
    """CIDEr-D of at most 10: well above 5 on the pictures that were trained on."""
    data = karpathy.load(place / "dataset_tiny.json", place / "features")
    model, vocabulary = load_captioner(place / "run")
    split = data.splits["train"]
    captions = caption(model, vocabulary, split, beam_size=3)
    scores = quality.score(split.references, captions, tokeniser="words", metrics=["CIDEr-D"])
    assert len(captions) == COUNT
    assert scores.values["CIDEr-D"] > 8


def test_pictures_are_captioned_as_their_features_are(place, learnt, capsys):
    data = karpathy.load(place / "dataset_tiny.json", place / "features")
    model, vocabulary = load_captioner(place / "run")
    expected = caption(model, vocabulary, data.splits["train"])
    photographs = karpathy.read_photographs(place / "dataset_tiny.json")
    out, _ = captioned(place, capsys, place / "images")
    lines = dict(
        re.fullmatch(r"(.+): (.+) \(-\d\.\d{3}\)", line).groups() for line in out.split("\n")[:-1]
    )
    assert list(lines) == [str(place / "images" / name) for name in sorted(learnt)]
    for photograph in photographs:
        assert lines[str(place / "images" / photograph.filename)] == expected[photograph.image_id]


def test_json_has_what_the_lines_have_and_the_best_come_first(place, tmp_path, capsys):
    chosen = sorted((place / "images").glob("*.png"))[:3]
    words = [*chosen, "--num-return", 3, "--beam-size", 4]
    out, _ = captioned(place, capsys, *words, "--out", tmp_path / "new" / "captions.json")
    results = json.loads((tmp_path / "new" / "captions.json").read_text())
    printed, _ = captioned(place, capsys, *words, "--json")
    assert json.loads(printed) == results
    assert [result["image"] for result in results] == list(map(str, chosen))
    for result in results:
        scores = [found["score"] for found in result["captions"]]
        assert len(scores) == 3 and scores == sorted(scores, reverse=True)
        assert f"{result['image']}:\n" in out
        for found in result["captions"]:
            assert f"    {found['caption']} ({found['score']:.3f})\n" in out
            assert found["log_prob"] < found["score"] < 0
    alone, _ = captioned(place, capsys, *chosen, "--beam-size", 4, "--json")
    for one, several in zip(json.loads(alone), results, strict=True):
        assert one["captions"][0]["caption"] == several["captions"][0]["caption"]


def test_batches_change_no_caption(place, capsys):
    chosen = sorted((place / "images").glob("*.png"))[:7]
    by_size = [captioned(place, capsys, *chosen, "--batch-size", size)[0] for size in (3, 50)]
    words = [re.sub(r"\(.*?\)", "", out) for out in by_size]
    assert words[0] == words[1]


def test_weights_of_16_bits_give_nearly_the_same_scores_and_the_same_captions(place, capsys):
    found = []
    for words in [[], ["--weights", "float16"]]:
        printed, _ = captioned(place, capsys, place / "images", *words, "--json")
        found.append([image["captions"][0] for image in json.loads(printed)])
    assert [one["caption"] for one in found[0]] == [one["caption"] for one in found[1]]
    scores = [np.array([one["score"] for one in captions]) for captions in found]
    assert 0 < np.abs(scores[0] - scores[1]).max() < FLOAT16_SCORES


def test_a_picture_s_format_changes_nothing_but_its_name(place, learnt, tmp_path, capsys):
    name = min(learnt)
    with Image.open(place / "images" / name) as image:
        for kind in ("bmp", "tiff", "gif", "webp"):
            options = {"lossless": True} if kind == "webp" else {}
            image.save(tmp_path / f"same.{kind}", **options)
        image.convert("RGBA").save(tmp_path / "same.png")
        image.save(
            tmp_path / "moving.gif", save_all=True, append_images=[Image.new("RGB", (64, 64))]
        )
    out, err = captioned(place, capsys, tmp_path)
    assert {line.split(": ")[1].rpartition(" ")[0] for line in out.splitlines()} == {learnt[name]}
    assert f"{tmp_path / 'moving.gif'}: holds 2 pictures, the first is captioned" in err


BAD = {
    "empty.png": b"",
    "text.jpg": b"no picture",
    "huge.png": huge(10_000, 10_000),
    "cut.png": encoded(Image.effect_noise((50, 50), 80))[:900],
    "cut.jpg": encoded(Image.effect_noise((50, 50), 80), "jpeg")[:900],
    "float.tif": encoded(Image.new("F", (5, 5)), "tiff"),
}


@settings(max_examples=6)
@given(st.lists(st.sampled_from(sorted(BAD)), min_size=1, unique=True))
def test_bad_pictures_are_refused_by_name_or_skipped(place, tmp_path_factory, names):
    folder = tmp_path_factory.mktemp("bad")
    for name in names:
        (folder / name).write_bytes(BAD[name])
    good = shutil.copy(place / "images" / "scene_000000.png", folder / "good.png")
    words = ["caption", folder, "--checkpoint", place / "run", "--out", folder / "out.json"]
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        assert main(*words) == 2
    assert out.getvalue() == "" and err.getvalue().count("\n") == 1
    assert all(str(folder / name) in err.getvalue() for name in names)
    assert err.getvalue().endswith("; --skip-bad leaves them out\n")
    assert not list(folder.glob("*out.json*"))
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as err:
        assert main(*words, "--skip-bad") == 0
    assert all(err.getvalue().count(f"skipped: {folder / name}: ") == 1 for name in names)
    (result,) = json.loads((folder / "out.json").read_text())
    assert result["image"] == str(good)


def test_where_nothing_is_left_the_command_fails(place, tmp_path, capsys):
    for name in ("text.jpg", "cut.png"):
        (tmp_path / name).write_bytes(BAD[name])
        assert main("caption", tmp_path / name, "--checkpoint", place / "run", "--skip-bad") == 2
        error = capsys.readouterr().err.splitlines()
        assert f"skipped: {tmp_path / name}: not a whole photograph" in error[0]
        assert error[1] == "captionbench: error: no picture could be read"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "nothing to caption, expected pictures, --scenes or --karpathy"),
        (["{}/nothing.png"], "nothing.png: no such file"),
        (["{}/empty"], "empty: a folder without pictures"),
        (["{}/images", "--num-return", 5], "--num-return is 5, expected 1 to --beam-size (3)"),
        (["{}/images", "--num-return", 0], "--num-return is 0"),
        (["{}/images", "--batch-size", 0], "--batch-size is 0"),
        (["{}/images", "--device", "nonsense"], "--device nonsense: PyTorch cannot use it"),
        (["{}/images", "--backbone", "nonsense"], "invalid choice: 'nonsense'"),
        (["{}/images", "--scenes"], "--scenes goes with a data set"),
        (["{}/images", "--overlay", "{}/o", "--head", 9], "head is 9, expected 0 to 3"),
        (["--scenes", "--out", "x.json", "--skip-bad"], "--skip-bad goes with pictures"),
        (["--scenes", "--out", "x.json", "--head", 0], "--head goes with pictures"),
        (["--scenes"], "a data set needs --out"),
        (["{}/images", "--moving"], "--moving goes with a data set"),
        (["--karpathy", "{}", "--features", "{}", "--out", "x.json", "--moving"], "with --scenes"),
        (["{}/images", "--head", 0], "--head goes with --overlay"),
        (["{}/images", "--groups", 64], "--groups goes with --words"),
        (["{}/images", "--weights", "float16", "--device", "meta"], "goes with --device cpu"),
    ],
)
def test_bad_options_exit_2_with_one_line(place, capsys, words, message):
    (place / "empty").mkdir(exist_ok=True)
    before = sorted(place.rglob("*"))
    words = [str(word).replace("{}", str(place)) for word in words]
    assert message in refused(capsys, "caption", *words, "--checkpoint", place / "run")
    assert sorted(place.rglob("*")) == before, "nothing is written"


def changed_run(place, folder, change):
    """A copy of the run with another configuration."""
    shutil.copytree(place / "run", folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(run_folder._hashed(change(config))))
    run, model = run_folder.RunFolder(folder), run_folder.load_captioner(place / "run")[0]
    run.save(run.best, model, run_folder.load(run.best).state)
    return folder


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"backbone": {}}, [], "names no backbone that made the features, expected --backbone"),
        (
            {"backbone": {"backbone": "swin"}},
            [],
            "of a Swin that is no part of it, expected a check",
        ),
        ({"backbone": {"backbone": "eye"}}, [], "backbone is 'eye', expected one of efficientnet"),
        (
            {"backbone": {"backbone": "eye"}},
            ["--backbone", "efficientnet_lite0"],
            "trained on features of eye, not of efficientnet_lite0",
        ),
        (
            {"backbone": {"backbone": "efficientnet_lite0", "weights_sha256": "0"}},
            [],
            "trained on features with weights_sha256 0, not 57934424",
        ),
    ],
)
def test_a_run_on_features_of_another_backbone_is_refused(
    place, tmp_path, capsys, change, options, message
):
    folder = changed_run(place, tmp_path / "run", lambda config: {**config, **change})
    picture = place / "images" / "scene_000000.png"
    assert message in refused(capsys, "caption", picture, "--checkpoint", folder, *options)


def test_a_run_that_does_not_say_takes_the_backbone_that_is_chosen(place, learnt, tmp_path, capsys):
    folder = changed_run(place, tmp_path / "run", lambda config: {**config, "backbone": {}})
    picture = place / "images" / "scene_000000.png"
    words = ["--checkpoint", folder, "--backbone", "efficientnet_lite0"]
    capsys.readouterr()
    assert main("caption", picture, *words) == 0
    assert learnt["scene_000000.png"] in capsys.readouterr().out


def test_a_run_on_features_of_another_width_is_refused(place, tmp_path, capsys):
    sizes = ["--d-model", 8, "--d-ff", 8, "--num-heads", 2, "--epochs", 1]
    run = tmp_path / "run"
    assert main("train", "--scenes", "6,2,2", *sizes, "--out", run) == 0
    picture = place / "images" / "scene_000000.png"
    words = ["--checkpoint", run, "--backbone", "efficientnet_lite0"]
    assert "wide, efficientnet_lite0 makes 1280" in refused(capsys, "caption", picture, *words)


def test_a_picture_that_is_given_twice_is_captioned_once_and_overlays_need_their_names(
    place, tmp_path, capsys
):
    picture = place / "images" / "scene_000000.png"
    out, _ = captioned(place, capsys, picture, place / "images", picture)
    assert len(out.splitlines()) == COUNT
    twin = shutil.copy(picture, tmp_path / picture.name)
    words = ["--checkpoint", place / "run", "--overlay", tmp_path / "overlay"]
    said = f"{picture} and {twin} would both be drawn as scene_000000.png.png"
    assert said in refused(capsys, "caption", picture, twin, *words)
    with Image.open(picture) as image:
        image.save(tmp_path / "scene_000000.bmp")
    assert main("caption", picture, tmp_path / "scene_000000.bmp", *words) == 0
    drawn = {path.name for path in (tmp_path / "overlay").iterdir()}
    assert drawn == {"scene_000000.png.png", "scene_000000.bmp.png"}


def test_overlays_are_drawn_for_each_picture(place, learnt, tmp_path, capsys):
    chosen = sorted((place / "images").glob("*.png"))[:2]
    drawn = {}
    for head in ([], ["--head", 1]):
        folder = tmp_path / f"overlay{len(head)}"
        captioned(place, capsys, *chosen, "--overlay", folder, *head)
        drawn[len(head)] = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert list(drawn[0]) == list(drawn[2]) and set(drawn[0]) == {path.name for path in chosen}
    for name, data in drawn[0].items():
        assert data != drawn[2][name], "a head is not the mean of all"
        with Image.open(io.BytesIO(data)) as image:
            assert image.format == "PNG"


def test_an_end_to_end_checkpoint_sees_with_its_own_backbone(place, tmp_path, capsys):
    vocabulary = Vocabulary(("a", "dog", "runs"))
    swin = SwinConfiguration(
        image_size=32, embed_dim=8, depths=(1, 1), num_heads=(1, 2), window_size=4
    )
    sizes = {"d_model": 8, "d_ff": 8, "num_heads": 2, "encoder": "static:4", "decoder": "dynamic:2"}
    model = EndToEnd.build(
        EndToEndConfiguration(
            vocabulary_size=len(vocabulary),
            d_feature=16,
            encoder_reduction="linear",
            decoder_reduction="linear",
            backbone=swin,
            **sizes,
        )
    ).eval()
    folder = tmp_path / "run"
    untrained(folder, model, vocabulary)
    chosen = sorted((place / "images").glob("*.png"))[:3]
    words = ["--checkpoint", folder, "--overlay", tmp_path / "overlay", "--json"]
    capsys.readouterr()
    assert main("caption", *chosen, *words) == 0
    found = json.loads(capsys.readouterr().out)
    pixels = np.stack([pictures.squeeze(pictures.read(Path(path)), 32) for path in chosen])
    images = normalise(torch.from_numpy(pixels))
    expected = beam_search(model, images, beam_size=3, max_length=20)
    for result, (best,) in zip(found, expected, strict=True):
        assert result["captions"][0]["caption"] == vocabulary.decode(best.tokens)
    assert len(list((tmp_path / "overlay").iterdir())) == 3
    assert Swin(model.backbone).image_size == 32
    message = refused(
        capsys, "caption", *chosen, "--checkpoint", folder, "--backbone", "efficientnet_lite0"
    )
    assert "has a backbone of its own, not efficientnet_lite0" in message


@pytest.fixture
def authors(tmp_path):
    """An end to end checkpoint in the authors' form, small, and a file of its words."""
    generator = np.random.default_rng(0)
    _, swin = end_to_end(generator)
    sizes = {"d_model": 8, "num_heads": 8, "vocabulary": 90, "groups": (2, 1), "positions": 20}
    case = released(generator, d_feature=swin.d_feature, **sizes)
    backbone = {f"swin_transf.{name}": tensor for name, tensor in swin.state_dict().items()}
    torch.save({"model_state_dict": {**case.tensors, **backbone}}, tmp_path / "model.pth")
    torch.save({"model_state_dict": case.tensors}, tmp_path / "features.pth")
    words = [f"word{i}" for i in range(90)]
    (tmp_path / "words.json").write_text(json.dumps(words))
    return tmp_path, words


def test_a_checkpoint_as_the_authors_released_it_captions_pictures(place, authors, capsys):
    folder, words = authors
    chosen = sorted((place / "images").glob("*.png"))[:2]
    options = ["--words", folder / "words.json", "--groups", 2, 1, "--json"]
    capsys.readouterr()
    assert main("caption", *chosen, *options, "--checkpoint", folder / "model.pth") == 0
    found = json.loads(capsys.readouterr().out)
    model = load_released(folder / "model.pth", groups=(2, 1), num_heads=8)
    pixels = np.stack([pictures.squeeze(pictures.read(path), 16) for path in chosen])
    images = normalise(torch.from_numpy(pixels)).double()
    expected = beam_search(model, images, beam_size=3, max_length=20)
    for result, (best,) in zip(found, expected, strict=True):
        ids = [i for i in best.tokens if i not in (77, 78, 79)]
        assert result["captions"][0]["caption"] == " ".join(words[i] for i in ids)
        assert_close(result["captions"][0]["score"], best.score)


@pytest.mark.parametrize(
    ("checkpoint", "words", "groups", "message"),
    [
        ("missing.pth", None, (2, 1), "missing.pth: no such file"),
        ("features.pth", None, (2, 1), "captions features, expected an end to end checkpoint"),
        ("model.pth", None, (64,), "groups"),
        ("model.pth", [1] * 90, (2, 1), "expected a JSON list of the checkpoint's words"),
        ("model.pth", ["a"], (2, 1), "words.json: 1 words, "),
    ],
)
def test_a_released_checkpoint_that_does_not_fit_is_refused(
    place, authors, capsys, checkpoint, words, groups, message
):
    folder, _ = authors
    if words:
        (folder / "words.json").write_text(json.dumps(words))
    options = ["--words", folder / "words.json", "--groups", *groups]
    picture = place / "images" / "scene_000000.png"
    assert message in refused(
        capsys, "caption", picture, "--checkpoint", folder / checkpoint, *options
    )
