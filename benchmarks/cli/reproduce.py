"""``captionbench reproduce``: train and score the rows of a paper's tables, and keep records."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import records
from benchmarks.cli.options import (
    above_0,
    add_data,
    add_json,
    at_least,
    check_device,
    check_records,
)
from benchmarks.errors import InputError
from benchmarks.papers import queue
from benchmarks.papers.experiment import Place
from benchmarks.scoring import java


def configure(parser: argparse.ArgumentParser) -> None:
    known = dict.fromkeys(experiment.paper for experiment in queue.EXPERIMENTS)
    parser.add_argument("paper", metavar="PAPER", nargs="?", help=", ".join(known))
    parser.add_argument(
        "--all", action="store_true", help="all papers, in the order of what a run settles"
    )
    parser.add_argument("--table", metavar="NAME", help="one table (default: all that there are)")
    parser.add_argument("--form", metavar="NAME", help="a size, see --list (default: the smallest)")
    parser.add_argument(
        "--seeds", type=at_least(1), metavar="N", help="how many (default: the form's)"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="ROW",
        help="rows named so, or that begin so; a wrong name lists them",
    )
    add_data(parser, "the folder of real data")
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
        type=at_least(1),
        metavar="N",
        help="do so many runs side by side, on one thread each (default: one after the other)",
    )
    parser.add_argument(
        "--minutes",
        type=above_0,
        metavar="N",
        help="start no further run after N minutes; run again to resume",
    )
    parser.add_argument("--list", action="store_true", help="print the tables and their forms")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Do every run that has no record yet.

    Raises:
        InputError: there is no such paper, table, form or row, or the data is not available.
    """
    if arguments.all and (arguments.paper or arguments.table):
        raise InputError("--all is of all papers: expected no PAPER and no --table")
    if arguments.all or (arguments.list and not (arguments.paper or arguments.table)):
        experiments = queue.with_form(arguments.form)
    else:
        experiments = queue.of_paper(arguments.paper, arguments.table)
    if arguments.list:
        for experiment in experiments:
            print(f"{experiment.paper}, table {', '.join(experiment.tables)}")
            for name, form in experiment.forms.items():
                print(f"  {name:10}{form.about}")
        return 0
    check_records(arguments.out)
    check_device(arguments.device)
    place = Place(arguments.data, arguments.work, arguments.device, True, arguments.features)
    # a report also shows published records
    own = arguments.out.parent == records.LOCAL
    known = {record.key for record in (records.load(records.PUBLISHED) if own else ())}
    if arguments.out.exists():
        known |= {record.key for record in records.read(arguments.out)}
    runs = queue.plan(
        experiments,
        arguments.form,
        place,
        seeds=arguments.seeds,
        only=arguments.only,
        by_row=arguments.all or arguments.processes is not None,
    )
    on_record = sum(run.key in known for run in runs)
    options = {"known": known, "minutes": arguments.minutes, "processes": arguments.processes}
    left, made = 0, list[dict[str, Any]]()
    with java.meteor_kept():
        for done in queue.train(runs, arguments.out, **options):
            left += not done.records
            made += map(records.to_json, done.records)
            for record in () if arguments.json else done.records:
                values = ", ".join(f"{name} {v:.4g}" for name, v in record.values.items())
                named = replace(done.run, row=record.what.row, trial=None).title
                print(f"table {record.what.table}: {named}: {values}", flush=True)
            print(done.state, file=sys.stderr)
    if arguments.json:
        print(json.dumps({"on_record": on_record, "made": made, "left": left}, indent=1))
        return 0
    if on_record:
        print(f"{on_record} of {len(runs)} runs are on record, and were not done again")
    if left:
        print(f"{left} runs not done; run the same command to resume")
    if arguments.out.exists():
        folder = "" if own else f" --records {arguments.out.parent}"
        for paper in dict.fromkeys(experiment.paper for experiment in experiments):
            print(f"{arguments.out}: the records; captionbench tables {paper}{folder} shows them")
    return 0
