"""The read-only LSTM's Figures 1 and 2: how often words occur in captions.

As the paper counts, pronouns, determiners and words that occur fewer than 4 times are left out.
Which words it takes for pronouns and determiners it does not print: here they are the closed
classes of English below; nor whether its share is of all words or of those that are counted: both
are. It counts the captions of MS-COCO, of which the data folder has those of Karpathy's validation
and test splits.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial

from benchmarks import records
from benchmarks.data.captions import read_references
from benchmarks.data.vocabulary import tokenise
from benchmarks.files import read_bytes, sha256
from benchmarks.kinds import Words
from benchmarks.papers.experiment import Experiment, Place, Run
from benchmarks.papers.stages import folder_of
from benchmarks.records import Record

PAPER, TABLE = "lstm_readonly", "words"
COMMONEST = 100
MIN_COUNT = 4
OF_ALL = f"{COMMONEST} commonest, % of all words"
OF_COUNTED = f"{COMMONEST} commonest, % of those counted"

PRONOUNS = (
    "i me myself mine you yourself yourselves yours he him himself she her herself hers it itself "
    "we us ourselves ours they them themselves theirs one ones who whom someone somebody something "
    "anyone anybody anything everyone everybody everything nobody nothing none"
)
DETERMINERS = (
    "a an the this that these those my your his its our their whose which what some any no every "
    "each either neither both all many much few several another other such"
)
LEFT_OUT = frozenset(f"{PRONOUNS} {DETERMINERS}".split())

SOURCES: dict[str, tuple[tuple[str, str], ...]] = {
    "MS-COCO": (
        ("coco_karpathy/dataset_coco_karpathy_val.json", "val"),
        ("coco_karpathy/dataset_coco_karpathy_test.json", "test"),
    ),
    "Flickr8k": tuple(
        ("flickr8k/dataset_flickr8k.json", split) for split in ("train", "val", "test")
    ),
}
"""Each row's files and their splits."""
NAMES = {"MS-COCO": "Karpathy's validation and test splits of MS-COCO", "Flickr8k": "Flickr8k"}
"""What the files are."""


def count(captions: Iterable[str]) -> tuple[Counter[str], dict[str, int]]:
    """How often each word occurs that the paper counts, and how many others there are by reason."""
    found = Counter(word for caption in captions for word in tokenise(caption))
    closed = LEFT_OUT & found.keys()
    rare = {word for word, times in found.items() if times < MIN_COUNT} - closed
    left_out = {
        "pronouns and determiners": sum(found[word] for word in closed),
        f"words that occur fewer than {MIN_COUNT} times": sum(found[word] for word in rare),
    }
    for word in closed | rare:
        del found[word]
    return found, left_out


def ordered(counts: Counter[str]) -> list[tuple[str, int]]:
    """The words with their counts, the commonest first, equals by the alphabet."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _run(place: Place, row: str, key: str) -> list[Record]:
    began = time.perf_counter()
    paths = [(folder_of(place, name), split) for name, split in SOURCES[row]]
    captions = [
        caption
        for path, split in paths
        for texts in read_references(path, split).values()
        for caption in texts
    ]
    counts, left_out = count(captions)
    commonest, counted = ordered(counts)[:COMMONEST], counts.total()
    words, shown = counted + sum(left_out.values()), sum(times for _, times in commonest)
    files = dict.fromkeys(path for path, _ in paths)
    contents = [sha256(read_bytes(path, "captions")) for path in files]
    return [
        records.make(
            Words(commonest=commonest, left_out=left_out),
            paper=PAPER,
            table=TABLE,
            row=row,
            values={
                OF_ALL: 100 * shown / words,
                OF_COUNTED: 100 * shown / counted,
                "words": words,
                "words counted": counted,
                "different words counted": len(counts),
            },
            status="other data",
            key=key,
            n=len(captions),
            data=records.Data(
                name=NAMES[row],
                fingerprint=sha256(" ".join(contents).encode()),
                split=" and ".join(split for _, split in paths),
            ),
            wall_s=time.perf_counter() - began,
        )
    ]


def _runs(form: str, place: Place, seeds: Sequence[int]) -> list[Run]:
    """A run a source, whatever the seeds: nothing is drawn."""
    found = []
    for row in SOURCES:
        key = records.key_of(_run, PAPER, TABLE, form, row)
        found.append(Run(row, seeds[0], key, partial(_run, place, row, key)))
    return found


EXPERIMENT = Experiment(
    PAPER,
    (TABLE,),
    ("captions",),
    {"captions": "the words of MS-COCO's and Flickr8k's captions are counted: seconds"},
    1,
    _runs,
)
