"""Shared parts of experiments on captions: data, training in stages, losses, beams."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from msgspec import structs

from benchmarks import records
from benchmarks.data import CaptionData, karpathy, scenes
from benchmarks.data.batches import CaptionBatches, padded_features
from benchmarks.errors import InputError
from benchmarks.files import locked, sha256
from benchmarks.kinds import Trial
from benchmarks.papers.experiment import Place, RowRun, label, not_run, trials
from benchmarks.records import Record
from benchmarks.scoring import captioners
from benchmarks.training.configuration import TrainingConfig
from benchmarks.training.fit import Result, fit
from benchmarks.training.stages import train
from torch_impl.models import BaseCaptioner
from torch_impl.training.computation import Computation
from torch_impl.training.objectives import cross_entropy
from torch_impl.training.optimisation import Optimisation
from torch_impl.training.sampling import SamplingComputation


def folder_of(place: Place, what: str) -> Path:
    """The path of ``what`` in the data folder.

    Raises:
        InputError: there is no data folder.
    """
    if place.data is None:
        raise InputError(f"no data folder, expected one with {what} (--data)")
    return place.data / what


def generated(_: Place) -> CaptionData:
    """The embedded scenes."""
    return scenes.make(seed=0, train=2000, val=100, test=250)


def flickr8k(place: Place) -> CaptionData:
    """Flickr8k with features by `captionbench features`.

    Raises:
        InputError: no data folder, no folder of features, or features of other photographs.
    """
    folder = folder_of(place, "flickr8k")
    if place.features is None:
        raise InputError(
            "no features, expected the folder that `captionbench features` made (--features)"
        )
    return karpathy.load(folder / "dataset_flickr8k.json", place.features)


def one_rate(lr: float, epochs: int, batch_size: int) -> Optimisation:
    """Adam at a constant learning rate without regularisers, as in ARNet and Middle-Out."""
    return Optimisation(
        lr=lr,
        warmup=0,
        schedule="linear",
        anneal=1.0,
        anneal_every=1,
        epochs=epochs,
        batch_size=batch_size,
        label_smoothing=0.0,
        dropout=0.0,
        algorithm="adam",
    )


def in_stages(
    data: CaptionData,
    config: TrainingConfig,
    seed: int,
    place: Place,
    initial: BaseCaptioner | None = None,
    sampling: str = "as-run",
) -> list[Result]:
    """Train the stages in turn, each from the best weights of the previous one.

    The first starts from the weights of ``initial``, or from random ones by the seed if None. Each
    stage has its own folder, so that rows with equal first stages share them and a killed run is
    resumed. Of several processes at the same stage one trains, and the others wait for it.
    Self-critical stages have the ``sampling`` of `SamplingComputation`.
    """
    begun: list[Any] = [data.fingerprint, config.configuration(data).to_dict(), seed]
    if initial is not None:
        weights = initial.state_dict().values()
        begun.append(sha256(b"".join(x.cpu().numpy().tobytes() for x in weights)))
    # validation scores use the vocabulary's own tokens, without Java
    without = *not_run(config, place.device), "benchmarks.scoring.java"
    folders, computations = {}, {}
    for name, stage in config.stages.items():
        begun.append(stage)
        code: list[Any] = [fit]
        computations[name] = Computation()
        if stage.objective == "self_critical" and sampling != "as-run":
            begun.append(sampling)
            code.append(SamplingComputation)
            computations[name] = SamplingComputation(sampling=sampling)
        folders[name] = place.work / records.key_of(code, *map(str, begun), without=without)
    results: list[Result] = []
    for name, computation in computations.items():
        results += train(
            config,
            data,
            folders,
            names=[name],
            seed=seed,
            initial=initial,
            resume=None,
            improve=False,
            lock=locked,
            device=place.device,
            progress=place.progress,
            computation=computation,
        ).values()
    return results


def chosen(
    run: RowRun,
    data: CaptionData,
    *,
    score: Callable[[BaseCaptioner, CaptionData, Result], float] | None = None,
) -> tuple[TrainingConfig, dict[str, float]]:
    """A row's training with the best point of its form's grid, and the score of each point.

    A point's score is that of its worst trial seed: a rate at which one seed in two diverges is not
    the best, however good the other is.

    Args:
        score: of a trial, higher is better; None: its best validation score.
    """
    scores: dict[str, float] = {}
    configs = {}
    for change, config, trial in trials(run.form, run.training):
        name = label(change)
        configs[name] = config
        scores[name] = min(
            result.best[result.best["metric"]]
            if score is None
            else score(result.model, data, result)
            for seed in run.form.trial_seeds
            for result in in_stages(data, trial.first(), seed, run.place)
        )
    return (configs[max(scores, key=scores.__getitem__)] if configs else run.training), scores


def tried(run: RowRun) -> list[Record[Trial]]:
    """The record of a grid point's validation score."""
    config = run.training.first()
    (result,) = in_stages(run.data, config, run.seed, run.place)
    best = result.best
    return [
        records.make(
            Trial(
                form=run.name,
                change=str(run.trial),
                **described(config, [result]),
                validations=[e for e in result.history if e["kind"] == "validation"],
            ),
            paper=run.paper,
            table=f"{run.tables[0]}, trials",
            row=f"{run.row}, {run.trial}",
            values={f"validation {best['metric']}": 100 * best[best["metric"]]},
            status=run.form.status,
            key=run.key,
            n=best["images"],
            seeds=list(run.seeds),
            data=data_of(run, run.data, best["split"]),
            signature=best["signature"] or "",
        )
    ]


def data_of(run: RowRun, data: CaptionData, split: str) -> records.Data:
    """The data field of a record."""
    named = run.named(data)
    return records.Data(name=named.name, fingerprint=named.fingerprint, split=split)


def described(config: TrainingConfig, results: Sequence[Result]) -> dict[str, Any]:
    """How a model was trained, as fields of `kinds.Trained`."""
    return {
        "configuration": results[-1].model.configuration.to_dict(),
        "stages": [asdict(stage) for stage in config.stages.values()],
    }


@torch.no_grad()
def mean_loss(model: BaseCaptioner, data: CaptionData, split: str, batch_size: int = 100) -> float:
    """The mean negative log-likelihood of a split's tokens, the end token included."""
    batches = CaptionBatches(
        data.splits[split], data.vocabulary, batch_size, max_length=model.max_length
    )
    model.eval()
    device = next(model.parameters()).device
    total, words = 0.0, 0
    for batch in batches.epoch(0):
        features, lengths, tokens, image_index = (tensor.to(device) for tensor in batch)
        memory = model.encode(features, lengths)[image_index]
        log_probs = model.decode(tokens[:, :-1], memory, lengths[image_index])
        count = int((tokens[:, 1:] != model.pad_id).sum())
        total += count * cross_entropy(log_probs, tokens[:, 1:], model.pad_id).item()
        words += count
    return total / words


def with_beams(
    record: Record, model: BaseCaptioner, data: CaptionData, *, beam_size: int, max_length: int = 20
) -> Record:
    """``record`` with the whole beam of each of its examples, the best caption first."""
    examples, split = record.details.examples, data.splits[record.data.split]
    features, lengths = padded_features(split.store, [e.image for e in examples])
    sizes = {"beam_size": beam_size, "max_length": max_length, "num_return": beam_size}
    beams = captioners.search(model, features, lengths, **sizes)
    shown = [
        structs.replace(example, beam=[data.vocabulary.decode(each.tokens) for each in beam])
        for example, beam in zip(examples, beams, strict=True)
    ]
    return records.replace(record, details=structs.replace(record.details, examples=shown))


def rounded(shares: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """Each image's shares of the distances, rounded for records."""
    return {name: [round(share, 6) for share in by_image] for name, by_image in shares.items()}
