"""The corpus of code: cut, numbered and split; what is not one is refused by line."""

import lzma
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.data import code
from benchmarks.data.batches import CaptionBatches
from benchmarks.data.vocabulary import tokenise
from benchmarks.errors import InputError

tokens = st.lists(st.sampled_from(["int", "x", "(", "TokenNameDOT", "List"]), min_size=1)
comments = st.lists(st.sampled_from(["A", "list", "of", "items", "42"]), min_size=1)
files = st.lists(st.tuples(tokens, comments), min_size=1, max_size=5)
corpora = st.tuples(files, files, files)


def write(folder, corpus):
    for name, pairs in zip(code.FILES.values(), corpus, strict=True):
        text = "".join(f"{' '.join(source)}\t{' '.join(words)}\n" for source, words in pairs)
        (folder / name).write_bytes(lzma.compress(text.encode()))
    return folder


@given(
    corpus=corpora,
    length=st.integers(1, 8),
    words_kept=st.integers(1, 8),
    min_count=st.integers(1, 4),
)
def test_files_and_comments_are_cut_and_numbered(
    corpus, length, words_kept, min_count, tmp_path_factory
):
    folder = write(tmp_path_factory.mktemp("code"), corpus)
    data = code.load(folder, length, words_kept, min_count)
    spoken = Counter(w.lower() for pairs in corpus for _, words in pairs for w in words)
    assert set(data.vocabulary.words) == {w for w, n in spoken.items() if n >= min_count}
    known = {token for source, _ in corpus[0] for token in source[:length]}
    for split, pairs in zip(data.splits.values(), corpus, strict=True):
        assert len(split.image_ids) == len(pairs)
        assert split.truncated == {
            "sources": sum(len(source) > length for source, _ in pairs),
            "captions": sum(len(words) > words_kept for _, words in pairs),
        }
        for i, (source, words) in zip(split.image_ids, pairs, strict=True):
            ids = split.store.features(i)
            assert len(ids) == min(length, len(source))
            assert all(0 <= k < split.store.d_feature for k in ids)
            unknown = [token not in known for token in source[:length]]
            assert [k == code.UNKNOWN for k in ids] == unknown
            assert tokenise(split.references[i][0]) == [w.lower() for w in words[:words_kept]]
    # equal tokens have equal ids, different ones different
    store = data.splits["train"].store
    of = {}
    for i, (source, _) in zip(data.splits["train"].image_ids, corpus[0], strict=True):
        for token, k in zip(source, store.features(i).tolist(), strict=False):
            assert of.setdefault(token, k) == k
    assert len(set(of.values())) == len(of) == store.d_feature - 1


@given(corpus=corpora)
def test_batches_hold_ids_padded_after_a_file_s_end(corpus, tmp_path_factory):
    data = code.load(write(tmp_path_factory.mktemp("code"), corpus))
    split = data.splits["train"]
    batches = CaptionBatches(split, data.vocabulary, 3, max_length=20, seed=1)
    seen = 0
    for batch in batches.epoch(0):
        assert not batch.features.is_floating_point() and batch.features.dim() == 2
        for ids, length in zip(batch.features, batch.lengths, strict=True):
            assert not ids[length:].any()
            seen += 1
    assert seen == len(split.image_ids)


BREAKS = {
    "no tab": ("int x a comment\n", "line 1 lacks code or comment"),
    "no comment": ("int x\ta\nint\t \n", "line 2 lacks code or comment"),
    "no code": (" \ta list\n", "line 1 lacks code or comment"),
    "no files": ("", "no files"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_lines_that_are_no_pairs_are_named(name, tmp_path):
    text, message = BREAKS[name]
    folder = write(tmp_path, ([(["x"], ["a"])],) * 3)
    (folder / "dev.dat.xz").write_bytes(lzma.compress(text.encode()))
    with pytest.raises(InputError, match=f"dev.dat.xz: {message}"):
        code.load(folder)


def test_what_unpacks_to_too_much_is_not_unpacked(tmp_path, monkeypatch):
    folder = write(tmp_path, ([(["x"], ["a"])],) * 3)
    (folder / "dev.dat.xz").write_bytes(lzma.compress(bytes(10**6)))
    monkeypatch.setattr(code, "MOST_BYTES", 1000)
    with pytest.raises(InputError, match=r"dev\.dat\.xz: over 1,000 bytes unpacked"):
        code.load(folder)


def test_files_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        code.load(tmp_path)
    folder = write(tmp_path, ([(["x"], ["a"])],) * 3)
    (folder / "test.dat.xz").write_bytes(b"no xz")
    with pytest.raises(InputError, match="cannot be read"):
        code.load(folder)
    with pytest.raises(InputError, match="length is 0"):
        code.load(folder, 0)
    with pytest.raises(InputError, match="words is 0"):
        code.load(folder, words=0)
    with pytest.raises(InputError, match="no file 9"):
        code.CodeTokens({}, 1).features(9)
