"""The read-only LSTM's Figures 1 and 2: word frequencies in captions.

As in the paper, pronouns, determiners and words that occur fewer than 4 times are left out. The
paper does not list its pronouns and determiners: ours are the closed classes of English below. It
does not say whether its share is of all words or of the counted ones: we give both. It counts the
captions of MS-COCO; the data folder has those of Karpathy's validation and test splits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import records
from benchmarks.data.captions import read_references
from benchmarks.data.vocabulary import tokenise
from benchmarks.files import read_bytes, sha256
from benchmarks.kinds import Words
from benchmarks.papers.caption_experiments import folder_of
from benchmarks.papers.experiment import Experiment, Form, Place, RowRun
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
"""The files and splits of each row."""
NAMES = {"MS-COCO": "Karpathy's validation and test splits of MS-COCO", "Flickr8k": "Flickr8k"}
"""The name of each row's data in records."""


def count(captions: Iterable[str]) -> tuple[Counter[str], dict[str, int]]:
    """The counts of the words that the paper counts, and the number of others by reason."""
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
    """The words with their counts, the most frequent first, then alphabetically."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


@dataclass(frozen=True)
class Sources:
    """The files of captions in the data folder."""

    folders: Place

    def paths(self, row: str) -> list[tuple[Path, str]]:
        """The files and splits of a row.

        Raises:
            InputError: there is no data folder.
        """
        return [(folder_of(self.folders, name), split) for name, split in SOURCES[row]]

    @property
    def fingerprint(self) -> str:
        """SHA-256 of all existing files."""
        paths = [path for row in SOURCES for path, _ in self.paths(row)]
        found = [sha256(path.read_bytes()) if path.is_file() else "" for path in paths]
        return sha256(" ".join(found).encode())


def _measure(run: RowRun) -> list[Record[Words]]:
    paths = run.data.paths(run.row)
    captions = [
        caption
        for path, split in paths
        for texts in read_references(path, split).values()
        for caption in texts
    ]
    counts, left_out = count(captions)
    commonest, counted = ordered(counts)[:COMMONEST], counts.total()
    words, shown = counted + sum(left_out.values()), sum(times for _, times in commonest)
    contents = [sha256(read_bytes(path, "captions")) for path in dict.fromkeys(p for p, _ in paths)]
    return [
        records.make(
            Words(commonest=commonest, left_out=left_out),
            paper=PAPER,
            table=TABLE,
            row=run.row,
            values={
                OF_ALL: 100 * shown / words,
                OF_COUNTED: 100 * shown / counted,
                "words": words,
                "words counted": counted,
                "different words counted": len(counts),
            },
            status=run.form.status,
            key=run.key,
            n=len(captions),
            data=records.Data(
                name=NAMES[run.row],
                fingerprint=sha256(" ".join(contents).encode()),
                split=" and ".join(split for _, split in paths),
            ),
        )
    ]


def _once(rows: Iterable[str], seeds: Sequence[int]) -> list[tuple[str, tuple[int, ...]]]:
    """One run for each row: nothing is random."""
    return [(row, (0,)) for row in rows]


def _nothing(form: Form, row: str) -> tuple[tuple[str, str], ...]:
    """The files of a row; nothing is trained."""
    return SOURCES[row]


EXPERIMENT = Experiment(
    PAPER,
    (TABLE,),
    tuple(SOURCES),
    {"captions": Form("the words of MS-COCO's and Flickr8k's captions are counted", Sources)},
    _nothing,
    _measure,
    seeds=1,
    seeding=_once,
    scored=False,
)
