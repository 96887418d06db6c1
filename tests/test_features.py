"""Feature shards: round trips, resuming after a kill anywhere, and every kind of damage named."""

import json
import os
import re
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import files
from benchmarks.data.features import ArrayFeatures, ShardedFeatures, ShardWriter, require
from benchmarks.errors import InputError

SIGNATURE = {"backbone": "test", "preprocessing": "none"}


def arrays_of(lengths, d_feature=3, seed=0):
    generator = np.random.default_rng(seed)
    return {
        7 * i + 1: generator.normal(size=(length, d_feature)).astype(np.float16)
        for i, length in enumerate(lengths)
    }


def write(folder, arrays, shard_images=2, dtype="float16", signature=SIGNATURE):
    d_feature = next(iter(arrays.values())).shape[1]
    writer = ShardWriter(folder, signature, d_feature, dtype=dtype, shard_images=shard_images)
    for image_id, array in arrays.items():
        if image_id not in writer.done:
            writer.add(image_id, array)
    writer.flush()
    return writer


def assert_holds(store, arrays):
    assert sorted(store.image_ids) == sorted(arrays)
    for image_id, array in arrays.items():
        features = store.features(image_id)
        assert features.dtype == np.float32 and features.shape == array.shape
        np.testing.assert_array_equal(features, array.astype(np.float32))


def snapshot(folder):
    return {p.name: p.read_bytes() for p in Path(folder).iterdir() if not p.name.startswith(".")}


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "features", arrays_of([1, 4, 2, 3, 5]))
    return tmp_path / "features"


@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=9),
    d_feature=st.integers(1, 5),
    dtype=st.sampled_from(["float16", "float32"]),
    shard_images=st.integers(1, 10),
    seed=st.integers(0, 99),
)
def test_what_is_written_is_read(lengths, d_feature, dtype, shard_images, seed):
    arrays = arrays_of(lengths, d_feature, seed)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "features"
        write(folder, arrays, shard_images, dtype)
        store = ShardedFeatures(folder)
        assert store.d_feature == d_feature
        assert len(store.index.shards) == -(-len(arrays) // shard_images)
        store.verify()
        assert_holds(store, arrays)
        assert_holds(ShardedFeatures(folder), arrays)
        assert_holds(ArrayFeatures(arrays), arrays)
        again = Path(temporary) / "again"
        write(again, arrays, shard_images, dtype)
        assert snapshot(again) == snapshot(folder), "the same bytes for the same features"


def test_float32_shards_keep_every_bit(tmp_path):
    array = np.array([[1 + 2**-23, 1e-38], [3e38, -0.0]], np.float32)
    write(tmp_path, {5: array}, dtype="float32")
    assert ShardedFeatures(tmp_path).features(5).tobytes() == array.tobytes()


def test_killed_at_any_point_then_resumed_is_as_if_never_killed(tmp_path, monkeypatch):
    arrays = arrays_of([1, 4, 2, 3, 5])
    write(tmp_path / "whole", arrays)
    expected = snapshot(tmp_path / "whole")

    class Killed(BaseException):
        """Not an Exception: as Ctrl-C and worse."""

    survived = 0
    for step in range(100):
        folder, calls = tmp_path / f"killed-{step}", 0

        def counted(real, step=step):
            def call(*arguments, **options):
                nonlocal calls
                calls += 1
                if calls > step:
                    raise Killed
                return real(*arguments, **options)

            return call

        with monkeypatch.context() as patch:
            # every step of a write: make the temporary file, flush it to disk, put it in place
            patch.setattr(files.os, "fdopen", counted(os.fdopen))
            patch.setattr(files.os, "fsync", counted(os.fsync))
            patch.setattr(Path, "replace", counted(Path.replace))
            try:
                write(folder, arrays)
            except Killed:
                survived += 1
            else:
                break
        if (folder / "index.json").exists():
            assert_holds(
                ShardedFeatures(folder), {i: arrays[i] for i in ShardedFeatures(folder).image_ids}
            )
        resumed = write(folder, arrays)
        assert not resumed.dropped
        assert snapshot(folder) == expected
    # three shards, and an index before and after them, of three steps each
    assert survived == 21


def test_resuming_keeps_whole_shards_and_adds_only_what_is_missing(folder):
    before = {p.name: p.stat().st_mtime_ns for p in folder.glob("*.npy")}
    writer = ShardWriter(folder, SIGNATURE, 3, shard_images=2)
    assert writer.done == {1, 8, 15, 22, 29}
    writer.add(36, np.ones((2, 3), np.float16))
    writer.flush()
    writer.flush()
    assert len(ShardedFeatures(folder).image_ids) == 6
    assert {n: (folder / n).stat().st_mtime_ns for n in before} == before


def test_shards_that_lost_their_index_are_left_as_they_are(folder):
    (folder / "index.json").unlink()
    before = snapshot(folder)
    with pytest.raises(InputError, match=r"index\.json: no such file, expected the index .*folder"):
        ShardWriter(folder, SIGNATURE, 3)
    assert snapshot(folder) == before


def test_resuming_makes_a_damaged_shard_again(folder):
    arrays = arrays_of([1, 4, 2, 3, 5])
    expected = snapshot(folder)
    data = bytearray((folder / "00001.npy").read_bytes())
    data[-1] ^= 1
    (folder / "00001.npy").write_bytes(data)
    (folder / "00002.npy").unlink()
    writer = write(folder, arrays)
    assert [name for reason in writer.dropped for name in re.findall(r"\d+\.npy", reason)] == [
        "00001.npy",
        "00002.npy",
    ]
    assert snapshot(folder) == expected
    assert_holds(ShardedFeatures(folder), arrays)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"signature": {**SIGNATURE, "backbone": "other"}}, "signature"),
        ({"dtype": "float32"}, "dtype"),
        ({"d_feature": 4}, "d_feature"),
    ],
)
def test_features_of_another_kind_are_not_mixed_in(folder, change, named):
    wanted = {"signature": SIGNATURE, "dtype": "float16", "d_feature": 3} | change
    with pytest.raises(InputError, match=f"another {named}"):
        ShardWriter(folder, wanted["signature"], wanted["d_feature"], dtype=wanted["dtype"])


def test_any_flipped_byte_of_any_file_is_found_and_its_file_named(folder):
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        for position in range(0, len(data), 7):
            damaged = bytearray(data)
            damaged[position] ^= 4
            path.write_bytes(damaged)
            with pytest.raises(InputError, match=path.name):
                ShardedFeatures(folder).verify()
        path.write_bytes(data)
    ShardedFeatures(folder).verify()


def test_a_corrupt_shard_is_named_when_its_first_image_is_read_and_the_others_can_be(folder):
    data = bytearray((folder / "00001.npy").read_bytes())
    data[-3] ^= 1
    (folder / "00001.npy").write_bytes(data)
    store = ShardedFeatures(folder)
    assert store.features(1).shape == (1, 3)
    with pytest.raises(InputError, match=r"00001\.npy: corrupt"):
        store.features(22)


@given(st.integers(0, 10**6))
def test_a_truncated_file_is_named_on_opening(cut):
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write(folder, arrays_of([3, 1, 2]))
        paths = sorted(folder.iterdir())
        path = paths[cut % len(paths)]
        data = path.read_bytes()
        path.write_bytes(data[: cut % len(data)])
        with pytest.raises(InputError, match=path.name):
            ShardedFeatures(folder)


def test_a_missing_shard_and_a_missing_index_are_named(folder, tmp_path):
    (folder / "00001.npy").unlink()
    with pytest.raises(InputError, match=r"00001\.npy: no such shard"):
        ShardedFeatures(folder)
    with pytest.raises(InputError, match=r"nowhere.index\.json: no such file"):
        ShardedFeatures(tmp_path / "nowhere")


@pytest.mark.parametrize("content", ["[]", "{}", '{"format": "other"}', "null", "3"])
def test_an_index_of_another_layout_is_named(folder, content):
    (folder / "index.json").write_text(content)
    with pytest.raises(InputError, match=r"index\.json: not of the format"):
        ShardedFeatures(folder)


@pytest.mark.parametrize("field", ["signature", "dtype", "d_feature", "shards", "fingerprint"])
def test_an_index_that_lacks_a_field_is_named(folder, field):
    content = json.loads((folder / "index.json").read_text())
    del content[field]
    (folder / "index.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"index\.json: a field is missing"):
        ShardedFeatures(folder)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_name_the_image(tmp_path, value):
    arrays = {image_id: a.astype(np.float32) for image_id, a in arrays_of([2, 2, 2]).items()}
    arrays[8][1, 2] = value
    with pytest.raises(InputError, match="image 8"):
        write(tmp_path, arrays, dtype="float32")
    with pytest.raises(InputError, match="image 8"):
        ArrayFeatures(arrays)


def test_shards_that_someone_else_wrote_with_a_nan_name_the_image(folder):
    rows = np.load(folder / "00001.npy")
    rows[2, 1] = np.nan
    np.save(folder / "00001.npy", rows)
    content = json.loads((folder / "index.json").read_text())
    digest = files.sha256((folder / "00001.npy").read_bytes())
    content["shards"][1]["sha256"] = digest
    parts = {k: content[k] for k in ("signature", "dtype", "d_feature", "shards")}
    content["fingerprint"] = files.sha256(json.dumps(parts, sort_keys=True).encode())
    (folder / "index.json").write_text(json.dumps(content))
    store = ShardedFeatures(folder)
    with pytest.raises(InputError, match=r"00001\.npy: image 22: features not finite"):
        store.features(15)


def test_a_number_too_large_for_float16_names_the_image_instead_of_becoming_infinite(tmp_path):
    with pytest.raises(InputError, match="image 3"):
        write(tmp_path, {3: np.full((1, 2), 1e6, np.float32)})


@pytest.mark.parametrize("shape", [(0, 3), (2, 4), (3,), (1, 2, 3)])
def test_a_wrong_shape_names_the_image_and_the_shapes(tmp_path, shape):
    writer = ShardWriter(tmp_path, SIGNATURE, 3)
    with pytest.raises(InputError, match=rf"image 9: features are {re.escape(str(shape))}"):
        writer.add(9, np.zeros(shape))


def test_an_image_twice_and_an_image_without_features_are_named(folder):
    writer = ShardWriter(folder, SIGNATURE, 3)
    with pytest.raises(InputError, match="image 8: its features are written already"):
        writer.add(8, np.zeros((1, 3)))
    writer.add(50, np.zeros((1, 3)))
    with pytest.raises(InputError, match="image 50: its features are written already"):
        writer.add(50, np.zeros((1, 3)))
    for store in ShardedFeatures(folder), ArrayFeatures(arrays_of([1, 1])):
        with pytest.raises(InputError, match="image 99 has no features"):
            store.features(99)
    with pytest.raises(InputError, match="2 images have no features, first 98"):
        require(ShardedFeatures(folder), [1, 98, 8, 99], "there")
    with pytest.raises(InputError, match="at least one image"):
        ArrayFeatures({})


@pytest.mark.parametrize("place", ["shard", "index"])
def test_a_full_disk_leaves_the_old_features_whole(folder, monkeypatch, place):
    before = snapshot(folder)
    writer = ShardWriter(folder, SIGNATURE, 3)
    writer.add(99, np.ones((2, 3)))
    calls = 0

    def full(descriptor):
        nonlocal calls
        calls += 1
        if calls == {"shard": 1, "index": 2}[place]:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(InputError, match=r"cannot be written \(No space left on device\)"):
        writer.flush()
    monkeypatch.undo()
    after = snapshot(folder)
    assert {name: after[name] for name in before} == before
    assert not list(folder.glob(".*")), "no temporary file is left"
    assert_holds(ShardedFeatures(folder), arrays_of([1, 4, 2, 3, 5]))
    writer.flush()
    assert len(ShardedFeatures(folder).image_ids) == 6, "when there is room again, nothing was lost"


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    writer = ShardWriter(tmp_path / "file" / "features", SIGNATURE, 3)
    writer.add(1, np.zeros((1, 3)))
    with pytest.raises(InputError, match="cannot be written"):
        writer.flush()
    with pytest.raises(InputError, match="dtype is 'int8'"):
        ShardWriter(tmp_path, SIGNATURE, 3, dtype="int8")


def test_fingerprints_tell_features_and_signatures_apart(tmp_path):
    one, other = arrays_of([2, 1]), arrays_of([2, 1], seed=1)
    prints = set()
    for i, (arrays, signature) in enumerate(
        [(one, SIGNATURE), (other, SIGNATURE), (one, {"backbone": "other"})]
    ):
        write(tmp_path / str(i), arrays, signature=signature)
        prints.add(ShardedFeatures(tmp_path / str(i)).fingerprint)
    prints |= {ArrayFeatures(one).fingerprint, ArrayFeatures(other).fingerprint}
    assert len(prints) == 5
    shutil.copytree(tmp_path / "0", tmp_path / "copy")
    assert ShardedFeatures(tmp_path / "copy").fingerprint in prints


def test_features_that_say_what_they_are_made_from_are_the_same_data_however_rounded(tmp_path):
    made_from = {**SIGNATURE, "weights_sha256": "w", "pictures_sha256": "p"}
    one, prints = arrays_of([2, 1]), {}
    rounded = {i: array * (1 + 2**-9) for i, array in one.items()}
    longer, other = arrays_of([3, 1]), {**made_from, "pictures_sha256": "q"}
    cases = {"one": (one, made_from, 2), "rounded": (rounded, made_from, 1)}
    cases |= {"longer": (longer, made_from, 2), "other": (one, other, 2)}
    for name, (arrays, signature, shard_images) in cases.items():
        write(tmp_path / name, arrays, shard_images, signature=signature)
        prints[name] = ShardedFeatures(tmp_path / name).fingerprint
    assert prints["one"] == prints["rounded"]
    assert len(set(prints.values())) == 3
