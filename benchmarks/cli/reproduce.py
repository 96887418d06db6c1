"""``captionbench reproduce``: train and score the rows of a paper's tables, and keep records."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path

from tqdm import tqdm

from benchmarks import papers, records
from benchmarks.devices import check_device
from benchmarks.errors import InputError
from benchmarks.files import check_folder
from benchmarks.papers.arnet import (
    captions as arnet,
)
from benchmarks.papers.arnet import (
    digits,
    discrepancy,
    hidden_states,
    reconstruction_weight,
)
from benchmarks.papers.expansionnet_v2 import ablation as expansion
from benchmarks.papers.expansionnet_v2 import rewards as expansion_rewards
from benchmarks.papers.experiment import Experiment, Place, Run
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
    reconstruction_weight.EXPERIMENT,
    hidden_states.EXPERIMENT,
    read_only.EXPERIMENT,
    words.EXPERIMENT,
    expansion.V1_COEFFICIENTS,
    expansion.V2_COEFFICIENTS,
    *expansion_rewards.EXPERIMENTS,
    denoising.EXPERIMENT,
    middle_out.VIDEO_CAPTIONS,
    middle_out.SELF_ATTENTION,
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    known = dict.fromkeys(experiment.paper for experiment in EXPERIMENTS)
    parser.add_argument("paper", metavar="PAPER", nargs="?", help=", ".join(known))
    parser.add_argument("--table", metavar="NAME", help="one table (default: all that there are)")
    parser.add_argument("--form", metavar="NAME", help="a size, see --list (default: the smallest)")
    parser.add_argument("--seeds", type=int, metavar="N", help="how many (default: the form's)")
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="ROW",
        help="rows named so, or that begin so; a wrong name lists them",
    )
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        default=os.environ.get("CAPTIONBENCH_DATA") or None,
        help="the folder of real data (default: $CAPTIONBENCH_DATA)",
    )
    parser.add_argument(
        "--features",
        type=Path,
        metavar="DIR",
        help="features of Flickr8k's photographs, of captionbench features",
    )
    parser.add_argument("--device", default="cpu", help="where PyTorch computes (default: cpu)")
    parser.add_argument(
        "--work",
        type=Path,
        metavar="DIR",
        default=records.LOCAL.parent / "runs",
        help="what unfinished runs keep",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        default=records.LOCAL / "training.jsonl",
        help="records, runs that are in it are not done again (default: your report's, for which "
        "published ones count too)",
    )
    parser.add_argument(
        "--processes",
        type=int,
        metavar="N",
        help="do so many runs side by side, on one thread each (default: one after the other)",
    )
    parser.add_argument("--minutes", type=float, help="begin no further run after so long")
    parser.add_argument("--list", action="store_true", help="print the tables and their forms")


def run(arguments: argparse.Namespace) -> int:
    """Do every run that has no record yet.

    Raises:
        InputError: there is no such paper, table, form or row, or the data is not there.
    """
    if arguments.list and arguments.paper is None and arguments.table is None:
        experiments = list(EXPERIMENTS)
    else:
        experiments = _chosen(arguments.paper, arguments.table)
    if arguments.list:
        for experiment in experiments:
            print(f"{experiment.paper}, table {', '.join(experiment.tables)}")
            for form in experiment.forms:
                print(f"  {form:10}{experiment.about[form]}")
        return 0
    if arguments.seeds is not None and arguments.seeds < 1:
        raise InputError(f"--seeds {arguments.seeds}: expected at least 1")
    if arguments.minutes is not None and not arguments.minutes > 0:
        raise InputError(f"--minutes {arguments.minutes}: expected above 0")
    if arguments.processes is not None and arguments.processes < 1:
        raise InputError(f"--processes {arguments.processes}: expected at least 1")
    if arguments.out.is_dir():
        raise InputError(f"--out {arguments.out}: is a folder, expected a file of records")
    records.check_writable(arguments.out)
    check_folder(arguments.work)
    check_device(arguments.device)
    place = Place(arguments.data, arguments.work, arguments.device, True, arguments.features)
    # a report shows what is published beside one's own
    own = arguments.out.parent == records.LOCAL
    known = {record.key for record in (records.load(records.PUBLISHED) if own else ())}
    if arguments.out.exists():
        known |= {record.key for record in records.read(arguments.out)}
    until = float("inf") if arguments.minutes is None else time.time() + 60 * arguments.minutes
    runs: dict[str, Run] = {}
    jobs, asked_for = [], 0
    for experiment in experiments:
        form = arguments.form or experiment.forms[0]
        asked = _asked(experiment, form, place, arguments.seeds, arguments.only)
        if arguments.processes is not None:
            # a row that goes on from another comes when that has gone on, and need not wait
            rows = [run.row for run in asked]
            asked.sort(key=lambda run: rows.index(run.row))
        asked_for += len(asked)
        for run in asked:
            if run.key not in known:
                runs[run.key] = run
                given = run, form, until, arguments.processes is not None
                jobs.append(Job(f"{run.name}, {form}", run.key, _make, given))
    left, on_record = 0, asked_for - len(jobs)
    with java.meteor_kept(), closing(_done(jobs, arguments.out, arguments.processes)) as done:
        for job, made in done:
            left += not made
            for record in made:
                values = ", ".join(f"{name} {v:.4g}" for name, v in record.values.items())
                what = record.what
                named = replace(runs[job.key], row=what.row).name
                print(f"table {what.table}: {named}: {values}", flush=True)
    if on_record:
        print(f"{on_record} of {asked_for} runs are on record, and were not done again")
    if left:
        print(f"{left} runs are left, run again")
    if arguments.out.exists():
        folder = "" if own else f" --records {arguments.out.parent}"
        shows = f"captionbench tables {arguments.paper}{folder}"
        print(f"{arguments.out}: the records; {shows} shows them")
    return 0


def _asked(
    experiment: Experiment, form: str, place: Place, seeds: int | None, only: Sequence[str] | None
) -> list[Run]:
    """The runs of the rows that are asked for."""
    if form not in experiment.forms:
        raise InputError(f"--form {form}: expected one of {', '.join(experiment.forms)}")
    runs = experiment.runs(form, place, range(seeds or experiment.seeds))
    if not only:
        return runs
    rows = dict.fromkeys(run.row for run in runs)
    # a whole name is that row's alone
    begun = tuple(name for name in only if name not in rows)
    asked = {row for row in rows if row in only or row.startswith(begun)}
    if not asked:
        of = f"of table {', '.join(experiment.tables)}"
        raise InputError(f"--only: no row {of} is so, expected one of {'; '.join(rows)}")
    return [run for run in runs if run.row in asked]


def _make(key: str, run: Run, form: str, until: float, beside: bool) -> list[Record]:
    """The run's records; none if it is too late to begin it; ``beside`` others or not."""
    if time.time() > until:
        return []
    print(f"{run.name}, {form}", file=sys.stderr)
    with named_lines(run.name) if beside else nullcontext():
        return run.make()


def _done(
    jobs: Sequence[Job], out: Path, processes: int | None
) -> Generator[tuple[Job, list[Record]], None, None]:
    """Each job with its records, which are in ``out``, in this process or in ``processes``."""
    if processes is not None:
        with tqdm(total=len(jobs), unit="run", file=sys.stderr) as bar:
            for done in run_all(jobs, out, processes):
                bar.update()
                yield done
        return
    for job in jobs:
        made = job.run()
        records.append(made, out, once=True)
        yield job, made


def _chosen(paper: str | None, table: str | None) -> list[Experiment]:
    experiments = [e for e in EXPERIMENTS if e.paper == paper]
    if paper is None or not experiments:
        known = ", ".join(dict.fromkeys(e.paper for e in EXPERIMENTS))
        problem = "no paper" if paper is None else f"no experiment of {paper!r}"
        raise InputError(f"{problem}, expected one of {known}")
    if table is None:
        return experiments
    own = {name for e in experiments for name in e.tables}
    # an experiment may have a table that its paper has not
    name = table if table in own else papers.load(paper).table(table).name
    chosen = [e for e in experiments if name in e.tables]
    if not chosen:
        known = ", ".join(t for e in experiments for t in e.tables)
        why = papers.load(paper).table(table).not_run
        raise InputError(f"--table {table}: no experiment of its own ({why}), of {known}")
    return chosen
