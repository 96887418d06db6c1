"""HabeasCorpus: Java files, each with a comment that describes it (ARNet section 5.2.1).

A folder holds ``train.dat.xz``, ``dev.dat.xz`` and ``test.dat.xz``, with a line for each Java file:
its code tokens, a tab, its comment's words. Its "features" are the ids of its code tokens.
"""

from __future__ import annotations

import io
import lzma
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.data import CaptionData, Ids, Split
from benchmarks.data.vocabulary import Vocabulary, tokenise
from benchmarks.errors import InputError
from benchmarks.files import read_bytes, sha256

MOST_BYTES = 2**28
"""Limit of the unpacked size; the corpus's largest file has 76 million bytes."""
FILES = {"train": "train.dat.xz", "val": "dev.dat.xz", "test": "test.dat.xz"}
LAYOUT = "HabeasCorpus: a line a file, code tokens, a tab, comment words (xz)"
LENGTH = 300
"""Maximum length of code and of a comment, in tokens; longer ones are cut, as in the paper."""
UNKNOWN = 0
"""The id of code tokens not in the train set; the others follow by descending frequency."""


class CodeTokens:
    """A store of code: token ids (L,) of each file, all below ``d_feature``."""

    def __init__(self, sequences: Mapping[int, Ids], d_feature: int) -> None:
        self._sequences, self.d_feature = sequences, d_feature
        self.image_ids: Sequence[int] = list(sequences)
        self.fingerprint = sha256(b"".join(ids.tobytes() + b"\n" for ids in sequences.values()))

    def features(self, image_id: int) -> Ids:
        """One file's ids, (L,).

        Raises:
            InputError: there is no such file.
        """
        if image_id not in self._sequences:
            raise InputError(f"no file {image_id} in the store of code")
        return self._sequences[image_id]


def load(
    folder: Path, length: int = LENGTH, words: int = LENGTH, min_count: int = 1
) -> CaptionData:
    """The corpus of ``folder``, code cut to ``length`` tokens and comments to ``words``.

    The vocabulary has the words that occur ``min_count`` times in the uncut comments of all splits.
    With ``min_count=1`` these are 12,858; with start and end, the paper's 12,860. The code tokens
    are those of the train set.

    Raises:
        InputError: a file is missing, damaged, or of another layout; or a line, named by number,
            has no code or no comment.
    """
    for name, given in (("length", length), ("words", words), ("min_count", min_count)):
        if given < 1:
            raise InputError(f"{name} is {given}, expected at least 1")
    lines: dict[str, list[tuple[list[str], list[str]]]] = {}
    digests = []
    for split, name in FILES.items():
        data = read_bytes(Path(folder) / name, LAYOUT)
        digests.append(sha256(data))
        lines[split] = _parse(data, Path(folder) / name)
    counts = Counter(token for code, _ in lines["train"] for token in code[:length])
    known = sorted(counts, key=lambda token: (-counts[token], token))
    ids = {token: i for i, token in enumerate(known, start=UNKNOWN + 1)}
    sequences: dict[int, Ids] = {}
    references: dict[str, dict[int, list[str]]] = {}
    for split, pairs in lines.items():
        start = len(sequences)
        for i, (code, _) in enumerate(pairs, start):
            sequences[i] = np.array([ids.get(token, UNKNOWN) for token in code[:length]], np.int64)
        references[split] = {
            i: [" ".join(comment[:words])] for i, (_, comment) in enumerate(pairs, start)
        }
    store = CodeTokens(sequences, len(ids) + 1)
    comments = (" ".join(comment) for pairs in lines.values() for _, comment in pairs)
    sizes = length, words, min_count
    cut = "" if sizes == (LENGTH, LENGTH, 1) else f", {length} tokens, {words} words"
    return CaptionData(
        name=f"habeascorpus{cut}",
        fingerprint=sha256(f"{' '.join(digests)} {sizes}".encode()),
        vocabulary=Vocabulary.from_captions(comments, min_count=min_count),
        splits={
            name: Split(list(texts), texts, store, truncated=_truncated(lines[name], length, words))
            for name, texts in references.items()
        },
    )


def _truncated(pairs: list[tuple[list[str], list[str]]], length: int, words: int) -> dict[str, int]:
    return {
        "sources": sum(len(code) > length for code, _ in pairs),
        "captions": sum(len(comment) > words for _, comment in pairs),
    }


def _parse(data: bytes, path: Path) -> list[tuple[list[str], list[str]]]:
    """The code tokens and the comment's words of each line."""
    try:
        with lzma.open(io.BytesIO(data)) as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise InputError(f"{path}: over {MOST_BYTES:,} bytes unpacked, expected {LAYOUT}")
        text = content.decode("utf-8")
    except (lzma.LZMAError, EOFError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error}), expected {LAYOUT}") from None
    pairs = []
    for number, line in enumerate(text.splitlines(), start=1):
        code, tab, comment = line.partition("\t")
        tokens, words = code.split(), tokenise(comment)
        if not (tab and tokens and words):
            raise InputError(f"{path}: line {number} lacks code or comment, expected {LAYOUT}")
        pairs.append((tokens, words))
    if not pairs:
        raise InputError(f"{path}: no files, expected {LAYOUT}")
    return pairs
