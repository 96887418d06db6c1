"""The main job: what `captionbench report` measures.

A job's key hashes all that its numbers depend on, also which scorers are available, since some need
Java. A job whose key has a record on this machine is not run again, so an interrupted run resumes
and a second one is quick.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from msgspec import convert

from benchmarks import equations, kinds, records
from benchmarks.data import captions, coco
from benchmarks.files import sha256
from benchmarks.papers.arnet import captions as arnet
from benchmarks.papers.arnet import hidden_states, reconstruction_weight
from benchmarks.papers.expansionnet_v2 import on_scenes
from benchmarks.papers.experiment import Experiment, Place, RowRun
from benchmarks.papers.lstm_readonly import read_only
from benchmarks.papers.middle_out import captions as middle_out
from benchmarks.perf import case_records, threads
from benchmarks.perf.flops import parameters, table_vi
from benchmarks.perf.roofline import training_time
from benchmarks.records import Record
from benchmarks.scoring import java, quality
from benchmarks.verify import table
from benchmarks.verify.conformance import PROJECT_QUICK_EXAMPLES
from benchmarks.workers import Job
from reference.equations import PAPERS


@dataclass(frozen=True)
class Released:
    """Captions that a paper's authors released, and the row of a table that they belong to."""

    file: str
    paper: str
    table: str
    row: str

    def paths(self, data: Path) -> tuple[Path, Path]:
        """The paths of the references and captions under the data folder."""
        folder = data / "coco_karpathy"
        return folder / "dataset_coco_karpathy_test.json", folder / "predictions" / self.file


RELEASED = (
    Released("expansionnet_v1.json", "expansionnet_v1", "4", "ExpansionNet_{64,16}"),
    Released("puret.json", "expansionnet_v2", "II", "PureT [11]"),
)
EXAMPLES = 10
"""Cases per property, some hundreds per implementation; `reports/own.md` has 10,000."""
STAGE = "RL "
"""Both were released after self-critical training."""


def score_released(key: str, data: Path, released: Released) -> list[Record]:
    """Score released captions on the Karpathy test split with the PTB tokeniser."""
    began = time.perf_counter()
    karpathy, predictions = released.paths(data)
    references = captions.read_references(karpathy, "test")
    scores = quality.score(references, coco.read_predictions(predictions), tokeniser="ptb")
    return [
        records.make(
            kinds.Released(
                predictions=released.file,
                predictions_sha256=sha256(predictions.read_bytes()),
                missing=scores.missing,
            ),
            paper=released.paper,
            table=released.table,
            row=released.row,
            values={STAGE + name: 100 * value for name, value in scores.values.items()},
            status="same data",
            key=key,
            n=len(references),
            data=records.Data(
                name="MS-COCO, Karpathy split",
                fingerprint=sha256(karpathy.read_bytes()),
                split="test",
            ),
            signature=scores.signature or "",
            wall_s=time.perf_counter() - began,
        )
    ]


def record_equations(key: str) -> list[Record]:
    """Which of each paper's equations have an oracle, and how many."""
    made = []
    for paper in PAPERS:
        entries = [e for e in equations.entries() if e["paper"] == paper]
        numbered = [e for e in entries if isinstance(e["number"], int)]
        listings = [e for e in entries if isinstance(e["number"], str)]
        made.append(
            records.make(
                kinds.Equations(entries=[convert(entry, kinds.Equation) for entry in entries]),
                paper=paper,
                table="equations",
                row="all",
                values={
                    "covered": sum(bool(e["oracle"]) for e in numbered),
                    "total": len(numbered),
                    "listings": sum(bool(e["oracle"]) for e in listings),
                    "all listings": len(listings),
                },
                status="same data",
                key=key,
            )
        )
    return made


def verify(key: str, examples: int) -> list[Record]:
    """Verify every implementation on the CPU, each property on ``examples`` cases."""
    cpu, processes = torch.device("cpu"), threads.usable()
    began = time.perf_counter()
    rows = list(table.rows("cpu", examples, processes=processes))
    described = case_records.describe(cpu, torch.get_num_threads())
    seconds = time.perf_counter() - began
    return [case_records.verification(rows, "cpu", key, described, seconds)]


def keyed(key: str, make: Callable[..., list[Record]], *given: Any) -> list[Record]:
    """The records that ``make`` returns, under the job's key."""
    return [records.replace(record, key=key) for record in make(*given)]


def make_all(key: str, runs: Sequence[RowRun]) -> list[Record]:
    """The records of runs, one after another, so that work they share is done once."""
    return [record for run in runs for record in run.make()]


TRAINED: tuple[tuple[Experiment, Callable[[str], tuple[object, ...]]], ...] = (
    (on_scenes.EXPERIMENT, lambda row: (row,)),
    (arnet.IMAGE_CAPTIONS, lambda row: (row.removesuffix(arnet.ADDED[-1]),)),
    (reconstruction_weight.EXPERIMENT, lambda _: (arnet.BASELINES[-1],)),
    (hidden_states.EXPERIMENT, lambda _: (arnet.BASELINES[-1],)),
    (read_only.EXPERIMENT, lambda row: (row,)),
    (middle_out.VIDEO_CAPTIONS, middle_out.shares),
    (middle_out.SELF_ATTENTION, middle_out.shares),
)
"""Experiments trained on the scenes with one seed. The function maps a row to its group: rows that
share a training are one job, as processes would wait for each other."""


def _on_scenes(work: Path, quick: bool) -> Iterator[Job]:
    """One job per training; of the quick form, which few have, the first and the last row."""
    groups: dict[tuple[object, ...], list[RowRun]] = {}
    form = "quick" if quick else "scenes"
    for experiment, shared in TRAINED:
        if form not in experiment.forms:
            continue
        rows = experiment.rows[:: len(experiment.rows) - 1] if quick else experiment.rows
        for run in experiment.runs(form, Place(None, work), [0]):
            if run.trial is None and run.row in rows:
                groups.setdefault((experiment.paper, *shared(run.row)), []).append(run)
    for runs in sorted(groups.values(), key=len, reverse=True):
        name = f"train, decode, score {runs[0].row}"
        if more := len(runs) - 1:
            name += f" and {more} more by the same training"
        keys = tuple(run.key for run in runs)
        yield Job(name, keys[-1], make_all, (runs,), keys)


def plan(data: Path | None, quick: bool) -> list[Job]:
    """All jobs, long ones first, so that none runs alone at the end."""
    scorers = java.available()
    examples = PROJECT_QUICK_EXAMPLES if quick else EXAMPLES
    key = records.key_of(verify, examples)
    jobs = [Job("verify every implementation", key, verify, (examples,))]
    jobs += _on_scenes(records.LOCAL.parent / "runs", quick)
    if not quick:
        for paper in training_time.tables():
            make = training_time.make_records
            name, key = f"predict training times of {paper}", records.key_of(make, paper)
            jobs.append(Job(name, key, keyed, (make, paper)))
    if data is not None and not quick:
        for released in RELEASED:
            paths = released.paths(data)
            if all(path.is_file() for path in paths):
                hashes = [sha256(path.read_bytes()) for path in paths]
                key = records.key_of(score_released, released.row, *hashes, scorers)
                jobs.append(Job(f"score {released.file}", key, score_released, (data, released)))
    key = records.key_of(table_vi.make_records, table_vi.captions(data))
    jobs.append(Job("count operations", key, table_vi.make_records, (data,)))
    key = records.key_of(parameters.counted)
    jobs.append(Job("count parameters", key, keyed, (parameters.make_records,)))
    key = records.key_of(record_equations, equations.entries())
    jobs.append(Job("list equations", key, record_equations))
    return jobs
