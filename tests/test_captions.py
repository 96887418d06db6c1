"""Readers of captions: what they read, and the line that names what they cannot."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.data.captions import read_references
from benchmarks.data.coco import read_predictions
from benchmarks.errors import InputError


def karpathy(*images):
    return {"dataset": "test", "images": list(images)}


def image(image_id, split="test", captions=("A man rides.",), key="cocoid"):
    return {"imgid": 7, key: image_id, "split": split, "sentences": [{"raw": c} for c in captions]}


def coco(image_ids, annotations):
    return {
        "images": [{"id": image_id} for image_id in image_ids],
        "annotations": [{"id": 0, "image_id": i, "caption": c} for i, c in annotations],
    }


def prediction(image_id=1, caption="a man"):
    return {"image_id": image_id, "caption": caption}


def error_of(read, *arguments):
    """The message of the error, which is one line and names the file."""
    with pytest.raises(InputError) as caught:
        read(*arguments)
    message = str(caught.value)
    assert "\n" not in message and str(arguments[0]) in message
    return message


@pytest.fixture
def save(tmp_path):
    def write(content):
        path = tmp_path / "captions.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return write


IDS = st.integers(0, 2**40)
CAPTIONS = st.lists(st.text(max_size=12), min_size=1, max_size=3)


@given(st.dictionaries(IDS, CAPTIONS, min_size=1, max_size=5), st.sampled_from(["cocoid", "imgid"]))
def test_karpathys_layout_reads_back_one_split(tmp_path_factory, references, key):
    path = tmp_path_factory.mktemp("k") / "k.json"
    images = [image(i, captions=c, key=key) for i, c in references.items()]
    path.write_text(json.dumps(karpathy(*images, image(next(iter(references)), "val", key=key))))
    assert read_references(path, "test") == references


@given(st.dictionaries(IDS, CAPTIONS, min_size=1, max_size=5), st.randoms())
def test_cocos_format_reads_back_in_any_order_of_annotations(tmp_path_factory, references, random):
    path = tmp_path_factory.mktemp("c") / "c.json"
    annotations = [(i, c) for i, captions in references.items() for c in captions]
    random.shuffle(annotations)
    path.write_text(json.dumps(coco(references, annotations)))
    read = read_references(path)
    assert {i: sorted(c) for i, c in read.items()} == {i: sorted(c) for i, c in references.items()}


@given(st.dictionaries(IDS, st.text(max_size=12), min_size=1, max_size=5))
def test_predictions_read_back(tmp_path_factory, predictions):
    path = tmp_path_factory.mktemp("p") / "p.json"
    path.write_text(json.dumps([prediction(i, c) for i, c in predictions.items()]))
    assert read_predictions(path) == predictions


def test_the_only_split_need_not_be_named(save):
    path = save(karpathy(image(5, "val")))
    assert read_references(path) == read_references(path, "val") == {5: ["A man rides."]}


def test_a_split_that_is_not_there_names_those_that_are(save):
    path = save(karpathy(image(1, "val"), image(2, "test"), image(3, "restval")))
    assert "no split 'train', expected one of restval, test, val" in error_of(
        read_references, path, "train"
    )
    assert "no split named, expected one of restval, test, val" in error_of(read_references, path)


def test_a_split_of_cocos_format_is_refused(save):
    path = save(coco([1], [(1, "a")]))
    assert "no split 'test': COCO's caption format has no splits" in error_of(
        read_references, path, "test"
    )


@pytest.mark.parametrize("read", [read_references, read_predictions])
def test_files_that_are_no_json_are_named(read, tmp_path, save):
    assert "no such file, expected" in error_of(read, tmp_path / "absent.json")
    assert "cannot be read" in error_of(read, tmp_path)
    assert "not valid JSON at line 1" in error_of(read, save('[{"image_id": 1, "capt'))
    assert "not valid JSON" in error_of(read, save(""))
    assert "not valid JSON" in error_of(read, save("[" * 100_000))
    assert "not valid JSON" in error_of(read, save(f'[{{"image_id": {"1" * 5000}}}]'))
    binary = tmp_path / "binary.json"
    binary.write_bytes(b'"\xff\xfe\xfa"')
    assert "not UTF-8 text" in error_of(read, binary)


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ([], 'no list "images"'),
        ({"images": {}}, 'no list "images"'),
        ({"images": []}, '"images" is empty'),
        ({"images": [{"id": 1}]}, 'neither "annotations" nor "sentences"'),
        ([prediction()], 'no list "images"'),
        (karpathy(image(1), 3), "images[1] is 3, expected an object with 'split'"),
        (karpathy({"cocoid": 1, "sentences": []}), "images[0] has no 'split'"),
        (karpathy(image(1, split=None)), "images[0].split is null"),
        (karpathy(image(1), {"split": "test", "sentences": []}), "images[1] has no 'cocoid'"),
        (karpathy(image("1")), 'images[0].cocoid is "1", expected an integer'),
        (karpathy(image(float("nan"))), "images[0].cocoid is NaN, expected an integer"),
        (karpathy(image(True)), "images[0].cocoid is true, expected an integer"),
        (karpathy(image(1), image(1)), "images[1]: cocoid 1 stands twice"),
        (karpathy(image(1, captions=())), "image 1 has no references"),
        (karpathy(image(1), {"cocoid": 2, "split": "test"}), "images[1] has no 'sentences'"),
        (
            karpathy({"cocoid": 2, "split": "test", "sentences": "a man"}),
            'images[0].sentences is "a man", expected a list',
        ),
        (
            karpathy({"cocoid": 2, "split": "test", "sentences": ["a man"]}),
            "images[0].sentences[0] is \"a man\", expected an object with 'raw'",
        ),
        (
            karpathy({"cocoid": 2, "split": "test", "sentences": [{"tokens": ["a"]}]}),
            "images[0].sentences[0] has no 'raw'",
        ),
        (karpathy(image(1, captions=("a", 5))), "images[0].sentences[1].raw is 5, expected a capt"),
        (karpathy(image(1, captions=("\ud800",))), "half a surrogate pair"),
        (coco([1, 1], [(1, "a")]), "images[1]: id 1 stands twice"),
        (coco([1], [(1, "a"), (2, "b")]), "annotations[1]: image_id 2 is not among the images"),
        (coco([1, 2], [(1, "a")]), "image 2 has no references"),
        (coco([1], [(1, None)]), "annotations[0].caption is null, expected a caption"),
        (coco([1.5], []), "images[0].id is 1.5, expected an integer"),
        ({"images": [{"id": 1}], "annotations": [4]}, "annotations[0] is 4, expected an object"),
    ],
)
def test_wrong_references_are_named_by_place(save, content, part):
    assert part in error_of(read_references, save(content))


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ([], "an empty list, expected at least one prediction"),
        ({"1": "a man"}, "not a list, expected predictions in COCO's result format"),
        (["a man"], "[0] is \"a man\", expected an object with 'image_id'"),
        ([{"caption": "a man"}], "[0] has no 'image_id', expected an integer"),
        ([{"image_id": 1}], "[0] has no 'caption', expected a caption as a string"),
        ([prediction("1")], '[0].image_id is "1", expected an integer'),
        ([prediction(float("nan"))], "[0].image_id is NaN, expected an integer"),
        ([prediction(1.0)], "[0].image_id is 1.0, expected an integer"),
        ([prediction(None)], "[0].image_id is null, expected an integer"),
        ([prediction(1), prediction(2), prediction(1)], "[2]: image_id 1 stands twice"),
        ([prediction(1, ["a", "man"])], '[0].caption is ["a", "man"], expected a caption'),
        ([prediction(1, float("nan"))], "[0].caption is NaN, expected a caption as a string"),
        ([prediction(1, "\udc00")], "half a surrogate pair"),
        ([prediction(1, list(range(99)))], "...,"),
    ],
)
def test_wrong_predictions_are_named_by_place(save, content, part):
    assert part in error_of(read_predictions, save(content))
