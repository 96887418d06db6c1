"""Photographs out of zip files and folders, Karpathy's layout, and the command that extracts."""

import itertools
import shutil
import sys
import time
import zipfile

import numpy as np
import pytest
from PIL import Image

from benchmarks.cli.main import main
from benchmarks.data import karpathy
from benchmarks.data.extract_features import in_parallel
from benchmarks.data.features import ShardedFeatures, ShardWriter
from benchmarks.data.photographs import Photographs
from benchmarks.errors import InputError
from tests.support.pictures import encoded, layout, picture


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("deep/inside/one.png", encoded(picture(1)))
        file.writestr("two.png", encoded(picture(2, 16, 16)))
        file.writestr("__MACOSX/._two.png", b"no picture")
        file.writestr("notes.txt", b"no picture either")
    return path


def test_zip_files_and_folders_give_the_same_picture_by_name(archive, tmp_path):
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "one.png").write_bytes(encoded(picture(1)))
    zipped, loose = Photographs([archive]), Photographs([folder])
    assert (len(zipped), len(loose)) == (2, 1)
    expected = np.asarray(picture(1).resize((8, 8), Image.Resampling.BICUBIC))
    np.testing.assert_array_equal(zipped.read("one.png", 8), expected)
    np.testing.assert_array_equal(loose.read("one.png", 8), expected)


def test_a_picture_of_the_right_size_is_read_as_it_is(archive):
    np.testing.assert_array_equal(
        Photographs([archive]).read("two.png", 16), np.asarray(picture(2, 16, 16))
    )


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK"])
def test_every_mode_becomes_rgb(tmp_path, mode):
    kind = "tiff" if mode == "CMYK" else "png"
    (tmp_path / "x.png").write_bytes(encoded(picture(3, mode=mode), kind))
    assert Photographs([tmp_path]).read("x.png", 12).shape == (12, 12, 3)


def test_missing_and_double_photographs_are_named(archive, tmp_path):
    photographs = Photographs([archive])
    with pytest.raises(InputError, match=r"2 photographs are missing, first three\.png"):
        photographs.require(["one.png", "three.png", "four.png"])
    with pytest.raises(InputError, match=r"three\.png"):
        photographs.read("three.png", 8)
    copy = shutil.copy(archive, tmp_path / "b.zip")
    with pytest.raises(InputError, match=r"b\.zip: \w+\.png stands twice"):
        Photographs([archive, copy])


def test_places_that_are_missing_empty_or_no_zip_files_are_named(tmp_path):
    with pytest.raises(InputError, match=r"nowhere\.zip: no such file"):
        Photographs([tmp_path / "nowhere.zip"])
    (tmp_path / "no.zip").write_bytes(b"PK but no zip file")
    with pytest.raises(
        InputError, match=r"no\.zip: cannot be read .* expected a zip file of photographs"
    ):
        Photographs([tmp_path / "no.zip"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="empty: no photographs"):
        Photographs([tmp_path / "empty"])


@pytest.mark.parametrize("kind", ["png", "jpeg"])
def test_a_truncated_photograph_is_named(tmp_path, kind):
    data = encoded(picture(5, 60, 60), kind)
    for cut in (0, 10, len(data) // 2):
        (tmp_path / f"cut.{kind}").write_bytes(data[:cut])
        with pytest.raises(InputError, match=rf"cut\.{kind}: not a whole photograph"):
            Photographs([tmp_path]).read(f"cut.{kind}", 8)


def test_a_photograph_that_is_corrupt_within_its_zip_file_is_named(archive):
    data = bytearray(archive.read_bytes())
    data[data.index(b"IDAT") + 8] ^= 1
    archive.write_bytes(data)
    with pytest.raises(InputError, match=r"a\.zip/deep/inside/one\.png: cannot be read"):
        Photographs([archive]).read("one.png", 8)


IMAGES = [
    (10, "train", "a.png"),
    (11, "restval", "b.png"),
    (12, "val", "c.png"),
    (13, "test", "d.png"),
]


@pytest.fixture
def data_set(tmp_path):
    """A data set with photographs in a zip file and features of other origin."""
    folder = tmp_path / "data"
    folder.mkdir()
    with zipfile.ZipFile(folder / "images.zip", "w") as file:
        for image_id, _, filename in IMAGES:
            file.writestr(filename, encoded(picture(image_id)))
    return layout(folder / "dataset_tiny.json", IMAGES)


def extracted(path, out, images=IMAGES):
    """Features of ``images`` as the command would sign them."""
    signature = {"photographs": karpathy.sources(karpathy.read_photographs(path))}
    writer = ShardWriter(out, signature, 4)
    for image_id, _, _ in images:
        writer.add(image_id, np.full((2, 4), image_id))
    writer.flush()
    return out


def test_a_data_set_with_features_is_caption_data(data_set, tmp_path):
    data = karpathy.load(data_set, extracted(data_set, tmp_path / "features"))
    assert {name: split.image_ids for name, split in data.splits.items()} == {
        "train": [10, 11],
        "val": [12],
        "test": [13],
    }
    assert data.name == "tiny"
    assert data.vocabulary.words == ("a", "dog", "runs")
    assert data.splits["test"].references[13][1] == "A dog runs 1."
    assert data.splits["val"].store.features(12).tolist() == [[12.0] * 4] * 2
    again = karpathy.load(data_set, tmp_path / "features")
    assert again.fingerprint == data.fingerprint


def test_features_of_other_photographs_or_of_too_few_are_refused(data_set, tmp_path):
    few = extracted(data_set, tmp_path / "few", IMAGES[:2])
    with pytest.raises(InputError, match="few: 2 images have no features, first 12"):
        karpathy.load(data_set, few)
    whole = extracted(data_set, tmp_path / "whole")
    other = layout(tmp_path / "dataset_other.json", [(10, "train", "another.png")])
    with pytest.raises(InputError, match="features of other photographs"):
        karpathy.load(other, whole)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "no images"),
        ('{"images": []}', "no images"),
        ('{"images": [3]}', r"images\[0\] is 3, expected an object with 'split'"),
        ('{"images": [{"imgid": 1, "split": "train"}]}', r"images\[0\] has no 'filename'"),
        (
            '{"images": [{"imgid": "1", "split": "train", "filename": "a"}]}',
            r'images\[0\].imgid is "1", expected an integer',
        ),
        ('{"images": [{"imgid": 1, "split": "train", "fil', "truncated"),
    ],
)
def test_a_layout_that_is_not_karpathys_is_named(tmp_path, content, message):
    (tmp_path / "bad.json").write_text(content)
    with pytest.raises(InputError, match=rf"bad\.json.*{message}"):
        karpathy.read_photographs(tmp_path / "bad.json")


def test_an_image_in_two_splits_and_a_data_set_without_train_are_named(tmp_path):
    twice = layout(tmp_path / "twice.json", [(1, "train", "a.png"), (1, "val", "b.png")])
    with pytest.raises(InputError, match="imgid 1 stands twice"):
        karpathy.read_photographs(twice)
    untrained = layout(tmp_path / "untrained.json", [(1, "val", "a.png")])
    features = extracted(untrained, tmp_path / "features", [(1, "val", "a.png")])
    with pytest.raises(InputError, match="no split 'train'"):
        karpathy.load(untrained, features)


def test_the_command_extracts_once_and_then_has_nothing_to_do(data_set, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["features", "--data", str(data_set.parent), "--out", str(out)]) == 0
    assert "4 extracted in" in capsys.readouterr().out
    store = ShardedFeatures(out)
    assert store.features(13).shape == (49, 1280)
    data = karpathy.load(data_set, out)
    assert data.splits["train"].store.fingerprint == store.fingerprint
    assert main(["features", "--karpathy", str(data_set), "--out", str(out)]) == 0
    assert "extracted" not in capsys.readouterr().out
    assert ShardedFeatures(out).fingerprint == store.fingerprint


def test_pictures_with_the_same_names_and_other_content_are_other_features(data_set, tmp_path):
    out = str(tmp_path / "out")
    assert main(["features", "--karpathy", str(data_set), "--out", out]) == 0
    (data_set.parent / "images.zip").unlink()
    for image_id, _, filename in IMAGES:
        (data_set.parent / filename).write_bytes(encoded(picture(image_id + 1)))
    assert main(["features", "--karpathy", str(data_set), "--out", out]) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--data", "{}"], "0 files dataset_"),
        (["--karpathy", "{}/data/dataset_tiny.json", "--images", "{}/no.zip"], "no such file"),
        (["--karpathy", "{}/no.json"], "no such file"),
        (["--data", "{}/data", "--batch-size", "0"], "--batch-size is 0"),
        ([], "no data set named"),
    ],
)
def test_bad_options_exit_2_with_one_line(data_set, tmp_path, capsys, options, message):
    words = [option.replace("{}", str(tmp_path)) for option in options]
    assert main(["features", *words, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists(), "nothing half-written"


def test_a_missing_photograph_is_found_before_anything_is_extracted(data_set, tmp_path, capsys):
    more = layout(data_set, [*IMAGES, (14, "test", "missing.png")])
    assert main(["features", "--karpathy", str(more), "--out", str(tmp_path / "out")]) == 2
    assert "1 photographs are missing, first missing.png" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_without_the_extra_vision_the_command_says_what_to_install(
    data_set, tmp_path, capsys, monkeypatch
):
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    assert main(["features", "--karpathy", str(data_set), "--out", str(tmp_path / "out")]) == 2
    assert "pip install 'captionbench[vision]'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_interrupted_command_leaves_nothing_half_written_and_can_be_run_again(
    data_set, tmp_path, capsys, monkeypatch
):
    def interrupted(*_):
        raise KeyboardInterrupt

    out = tmp_path / "out"
    words = ["features", "--karpathy", str(data_set), "--batch-size", "1", "--out", str(out)]
    with monkeypatch.context() as patch:
        patch.setattr(ShardWriter, "add", interrupted)
        assert main(words) == 130
    assert "interrupted" in capsys.readouterr().err
    assert not out.exists()
    assert main(words) == 0
    assert sorted(ShardedFeatures(out).image_ids) == [10, 11, 12, 13]


def test_a_damaged_photograph_ends_the_command_with_its_name(data_set, tmp_path, capsys):
    folder = tmp_path / "loose"
    folder.mkdir()
    for image_id, _, filename in IMAGES:
        data = encoded(picture(image_id))
        (folder / filename).write_bytes(data[:-40] if filename == "c.png" else data)
    words = ["--karpathy", str(data_set), "--images", str(folder), "--out", str(tmp_path / "out")]
    assert main(["features", *words]) == 2
    assert "loose/c.png: not a whole photograph" in capsys.readouterr().err


def test_work_in_parallel_keeps_its_order_and_takes_only_a_little_ahead():
    def slow_first(n):
        time.sleep(0.01 if n % 2 == 0 else 0)
        return n * n

    assert list(in_parallel(slow_first, range(12))) == [n * n for n in range(12)]
    endless = itertools.count()
    assert next(in_parallel(slow_first, endless)) == 0
    assert next(endless) < 100
    with pytest.raises(ZeroDivisionError):
        list(in_parallel(lambda n: 1 / n, [2, 1, 0]))
