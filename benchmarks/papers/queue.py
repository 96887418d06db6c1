"""The queue of training runs for the papers' tables."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks import papers, records
from benchmarks.errors import InputError
from benchmarks.papers.arnet import captions as arnet
from benchmarks.papers.arnet import digits, discrepancy, hidden_states, reconstruction_weight
from benchmarks.papers.expansionnet_v2 import ablation, rewards
from benchmarks.papers.experiment import Experiment, Place, RowRun
from benchmarks.papers.lstm_readonly import read_only, words
from benchmarks.papers.middle_out import captions as middle_out
from benchmarks.papers.middle_out import denoising
from benchmarks.records import Record
from benchmarks.scoring import java
from benchmarks.workers import Job, named_lines, run_all

EXPERIMENTS: tuple[Experiment, ...] = (
    arnet.IMAGE_CAPTIONS,
    arnet.CODE_CAPTIONS,
    digits.EXPERIMENT,
    discrepancy.EXPERIMENT,
    discrepancy.FROM_THE_MIDDLE,
    reconstruction_weight.EXPERIMENT,
    hidden_states.EXPERIMENT,
    read_only.EXPERIMENT,
    words.EXPERIMENT,
    ablation.V2_COEFFICIENTS,
    ablation.V1_COEFFICIENTS,
    *rewards.EXPERIMENTS,
    denoising.EXPERIMENT,
    middle_out.VIDEO_CAPTIONS,
    middle_out.SELF_ATTENTION,
)


def of_paper(paper: str | None, table: str | None) -> list[Experiment]:
    """The experiments of a paper, or of one of its tables.

    Raises:
        InputError: there is no such paper or table, or no experiment of it.
    """
    experiments = [e for e in EXPERIMENTS if e.paper == paper]
    if paper is None or not experiments:
        known = ", ".join(dict.fromkeys(e.paper for e in EXPERIMENTS))
        problem = "no paper" if paper is None else f"no experiment of {paper!r}"
        raise InputError(f"{problem}, expected one of {known}")
    if table is None:
        return experiments
    own = {name for e in experiments for name in e.tables}
    # an experiment may have a table that is not in the paper
    name = table if table in own else papers.load(paper).table(table).name
    chosen = [e for e in experiments if name in e.tables]
    if not chosen:
        known = ", ".join(dict.fromkeys(t for e in experiments for t in e.tables))
        why = papers.load(paper).table(table).not_run
        raise InputError(f"--table {table}: no experiment of its own ({why}), of {known}")
    return chosen


def with_form(form: str | None) -> list[Experiment]:
    """The experiments of all papers that have the form; all if None.

    Raises:
        InputError: none has it.
    """
    chosen = [e for e in EXPERIMENTS if form is None or form in e.forms]
    if not chosen:
        known = ", ".join(dict.fromkeys(name for e in EXPERIMENTS for name in e.forms))
        raise InputError(f"--form {form}: expected one of {known}")
    return chosen


def plan(
    experiments: Sequence[Experiment],
    form: str | None,
    place: Place,
    *,
    seeds: int | None = None,
    only: Sequence[str] | None = None,
    by_row: bool = False,
) -> list[RowRun]:
    """The runs of the selected rows, in order and without duplicates.

    Args:
        form: a name; None: each experiment's smallest.
        seeds: the number of seeds; None: each experiment's default.
        only: names of rows, or their beginnings; None: all rows.
        by_row: order by importance: all seeds of every experiment's first row, the baseline, then
            of the second rows, and so on. A row's trials precede the row before it, so that no
            process waits for a trial.

    Raises:
        InputError: there is no such form or row, or the data is not available.
    """
    ranked: list[tuple[tuple[int, ...], RowRun]] = []
    for number, experiment in enumerate(experiments):
        name = form or next(iter(experiment.forms))
        if name not in experiment.forms:
            raise InputError(f"--form {name}: expected one of {', '.join(experiment.forms)}")
        rows = _asked(experiment, only, alone=len(experiments) == 1)
        for run in experiment.runs(name, place, range(seeds or experiment.seeds)):
            if run.row in rows:
                rank = experiment.rows.index(run.row) - (run.trial is not None)
                order = experiment.later, rank, number
                ranked.append((order if by_row else (), run))
    if only and not ranked:
        known = "; ".join(row for e in experiments for row in e.rows)
        raise InputError(f"--only: no row starts with it, expected one of {known}")
    runs = [run for _, run in sorted(ranked, key=lambda each: each[0])]
    return list({run.key: run for run in runs}.values())


def _asked(experiment: Experiment, only: Sequence[str] | None, *, alone: bool) -> set[str]:
    """The selected rows; an exact name selects only that row."""
    if not only:
        return set(experiment.rows)
    begun = tuple(name for name in only if name not in experiment.rows)
    asked = {row for row in experiment.rows if row in only or row.startswith(begun)}
    if not asked and alone:
        of = f"of table {', '.join(experiment.tables)}"
        known = "; ".join(experiment.rows)
        raise InputError(f"--only: no row {of} starts with it, expected one of {known}")
    return asked


@dataclass(frozen=True)
class Done:
    """A finished run: its records (empty if time was up before it began) and the queue's state."""

    run: RowRun
    records: list[Record[Any]]
    state: str


def train(
    runs: Sequence[RowRun],
    out: Path,
    *,
    known: Iterable[str] = (),
    minutes: float | None = None,
    processes: int | None = None,
) -> Iterator[Done]:
    """Execute the runs without a record, appending each one's records to ``out`` before yielding.

    Args:
        runs: in order of execution.
        known: keys of the runs that have records.
        minutes: start no further run after this time.
        processes: number of worker processes of one thread each; None: sequentially in this one.
    """
    began = time.time()
    until = float("inf") if minutes is None else began + 60 * minutes
    have = set(known)
    left = {run.key: run for run in runs if run.key not in have}
    jobs = [
        Job(run.title, key, _make, (run, until, processes is not None)) for key, run in left.items()
    ]
    rows = Counter(_row(run) for run in runs if run.trial is None)
    waiting = Counter(_row(run) for run in left.values() if run.trial is None)
    ended = 0
    with closing(_each(jobs, out, processes)) as done:
        for job, made in done:
            run = left[job.key]
            ended += bool(made)
            waiting[_row(run)] -= bool(made) and run.trial is None
            rest = sum(count > 0 for count in waiting.values())
            seconds = (time.time() - began) / max(1, ended) * (len(jobs) - ended)
            state = (
                f"rows done {len(rows) - rest}, left {rest}; runs left {len(jobs) - ended}, "
                f"about {_clock(seconds)}"
            )
            yield Done(run, made, state)


def _row(run: RowRun) -> tuple[object, ...]:
    return *run.places, run.row, run.name


def _clock(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"


def _make(key: str, run: RowRun, until: float, beside: bool) -> list[Record[Any]]:
    """The run's records; none after the time ``until``; ``beside``: parallel to other runs."""
    if time.time() > until:
        return []
    title = f"{run.title}, {run.name}"
    print(title, file=sys.stderr)
    with named_lines(title) if beside else nullcontext():
        return run.make()


def _each(
    jobs: Sequence[Job], out: Path, processes: int | None
) -> Generator[tuple[Job, list[Record[Any]]], None, None]:
    """Run each job, in this process or in ``processes``; its records are appended to ``out``."""
    if processes is not None:
        with tqdm(total=len(jobs), unit="run", file=sys.stderr) as bar:
            for done in run_all(jobs, out, processes, java.keep_meteor):
                bar.update()
                yield done
        return
    for job in jobs:
        made = job.run()
        records.append(made, out, once=True)
        yield job, made
