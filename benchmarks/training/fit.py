"""Train one stage of a captioner: with validation, best and last checkpoints, and resuming."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor
from tqdm import tqdm

from benchmarks import run_folder
from benchmarks.data import CaptionData
from benchmarks.errors import InputError
from benchmarks.run_folder import RunFolder
from benchmarks.scoring import quality
from benchmarks.scoring.caption import caption
from benchmarks.training.configuration import Stage
from benchmarks.training.objective import AnyBatches, AnyLoop, make_loop, seeded
from torch_impl.common.weights import CheckpointError, fingerprint, load_weights
from torch_impl.models import (
    AnyConfiguration,
    BaseCaptioner,
    Configuration,
    build,
)
from torch_impl.training import NonFiniteError, Step
from torch_impl.training.computation import Computation
from torch_impl.training.distributed import ProcessGroup

NAMED = 8
"""Number of images that the error of a non-finite loss names."""


@dataclass(frozen=True)
class Result:
    """A trained model, with the weights of its best validation, and its log."""

    model: BaseCaptioner
    history: list[dict[str, Any]]
    """The log: a record for each interval of steps (``kind`` "steps") and each "validation"."""
    best: dict[str, Any]
    """The record of the best validation."""
    seconds: float
    """Wall-clock time of the training, validations and earlier parts included."""
    finished: bool
    """Whether training ended by its epochs or its patience, not by the time limit."""


@dataclass
class FitState:
    """The state of `fit`."""

    data: CaptionData
    stage: Stage
    folder: RunFolder | None
    loop: AnyLoop
    batches: AnyBatches
    history: list[dict[str, Any]] = field(default_factory=list)
    best: dict[str, Any] = field(default_factory=dict)
    best_weights: dict[str, Tensor] = field(default_factory=dict)
    interval: list[Step] = field(default_factory=list)
    """The steps since the last record of the log."""
    earlier: float = 0.0
    began: float = field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float:
        return self.earlier + time.perf_counter() - self.began

    @property
    def converged(self) -> bool:
        """Whether validation has not improved for the stage's patience."""
        patience, per_epoch = self.stage.patience, len(self.batches)
        if patience is None or not self.best or self.loop.step % per_epoch:
            return False
        return bool(self.loop.step - self.best["step"] >= patience * per_epoch)

    def log(self, record: dict[str, Any]) -> None:
        self.history.append(record)
        if self.folder:
            self.folder.append(record)

    def log_truncated_captions(self, shown: bool) -> None:
        """Log the number of captions and sources that are cut, if any."""
        if truncated := {what: count for what, count in self.batches.truncated.items() if count}:
            self.log({"kind": "cut", "step": 0, **truncated})
            if shown:
                counts = " and ".join(f"{count:,} {what}" for what, count in truncated.items())
                print(f"captionbench: {counts} are longer than the limit: cut", file=sys.stderr)

    def log_steps(self) -> None:
        steps, self.interval = self.interval, []
        last, seconds = steps[-1], sum(step.seconds for step in steps)
        rewards = [step.reward for step in steps if step.reward is not None]
        self.log(
            {
                "kind": "steps",
                "step": last.step,
                "epoch": last.epoch,
                "loss": sum(step.loss for step in steps) / len(steps),
                **({"reward": sum(rewards) / len(rewards)} if rewards else {}),
                "gradient_norm": last.gradient_norm,
                "learning_rate": last.learning_rate,
                "captions_per_second": sum(step.captions for step in steps) / seconds,
                "waiting_share": sum(step.waited for step in steps) / seconds,
                "processes": self.loop.process_group.world_size,
                "seconds": self.seconds,
            }
        )

    def validate(self) -> None:
        """Score the validation set, on rank 0 only.

        Uses the vocabulary's tokeniser, without Java: not comparable with `evaluate`'s PTB scores.
        """
        if not self.loop.process_group.is_main:
            return
        model, metric, began = self.loop.model, self.stage.metric, time.perf_counter()
        name = validation_split(self.data)
        split = self.data.splits[name].first(self.stage.validation_images)
        try:
            captions = caption(
                model,
                self.data.vocabulary,
                split,
                beam_size=self.stage.validation_beam,
                max_length=self.stage.max_length,
            )
        except InputError as error:
            hint = ""
            if "NaN" in str(error):
                self.roll_back(self.loop.step)
                hint = self.restart_hint()
            where = f"validation after step {self.loop.step}"
            raise InputError(f"{where}: {error}{hint}") from error
        scores = quality.score(
            split.references,
            captions,
            tokeniser=self.data.vocabulary.tokeniser,
            metrics=[metric],
        )
        record = {
            "kind": "validation",
            "step": self.loop.step,
            # -1 before the first step
            "epoch": self.loop.epoch if self.loop.step else -1,
            metric: scores.values[metric],
            "metric": metric,
            "images": len(captions),
            "split": name,
            "beam_size": self.stage.validation_beam,
            "signature": scores.signature,
            "validation_seconds": time.perf_counter() - began,
            "seconds": self.seconds,
        }
        self.log(record)
        if not self.best or record[metric] > self.best[metric]:
            self.best = record
            self.best_weights = {k: v.detach().clone() for k, v in model.state_dict().items()}
            if self.folder:
                self.folder.save(self.folder.best, model, {**self._identity(), "best": record})

    def _identity(self) -> dict[str, Any]:
        return {
            "vocabulary": self.data.vocabulary.fingerprint,
            "data": self.data.fingerprint,
            "step": self.loop.step,
        }

    def save(self) -> None:
        if self.folder:
            state = {
                **self._identity(),
                "training": self.loop.state_dict(),
                "interval": [step.to_dict() for step in self.interval],
                "best": self.best,
                "seconds": self.seconds,
            }
            self.folder.save(self.folder.last, self.loop.model, state)

    def roll_back(self, step: int) -> None:
        """Restore the checkpoints before ``step``, after which a loss is not finite."""
        if self.folder:
            self.folder.restore_previous(step, remove_first=not self.earlier)

    def restart_hint(self) -> str:
        """How to restart after a non-finite loss: a clause of its message."""
        if self.folder is None:
            return "; expected a lower learning rate"
        path = self.folder.best_or_last
        if path is None:
            return "; no checkpoint of a finite loss came before; expected a lower --learning-rate"
        step = run_folder.load(path).state["step"]
        losses = [r["loss"] for r in self.history if r["kind"] == "steps" and r["step"] <= step]
        losses += [one.loss for one in self.interval if one.step <= step]
        loss = f", loss {losses[-1]:.3g}," if losses else ""
        return (
            f"; {path} of step {step}{loss} is kept; expected --initial {self.folder.path}, a "
            "lower --learning-rate and another --out"
        )

    def resume(self) -> None:
        """Resume from the folder's last checkpoint, or start anew if there is none.

        Rank 0 reads it and broadcasts it; other ranks need no access to the folder.
        """
        last = None
        if self.folder and self.folder.last.exists():
            last = run_folder.load(self.folder.last)
        last = self.loop.process_group.broadcast(last)
        if last:
            try:
                self.loop.load_state_dict(last.weights, last.state["training"], str(last.path))
            except ValueError as error:
                raise InputError(str(error)) from error
            self.earlier, self.best = last.state["seconds"], last.state["best"]
            self.interval = [Step.from_dict(step) for step in last.state["interval"]]
        if not self.folder:
            return
        if self.best:
            self.best_weights = run_folder.load(self.folder.best).weights
        self.history = self.folder.truncate_log(self.loop.step if last else -1)
        if last is None:
            print(
                f"captionbench: {self.folder.path}: no checkpoint to resume from: starts anew",
                file=sys.stderr,
            )


def fit(
    data: CaptionData,
    configuration: AnyConfiguration,
    stage: Stage,
    seed: int,
    out: Path | None = None,
    *,
    initial: Mapping[str, Tensor] | None = None,
    improve: bool = False,
    resume: bool = False,
    minutes: float | None = None,
    device: str = "cpu",
    computation: Computation = Computation(),  # noqa: B008 - it is frozen
    log_every: int = 50,
    checkpoint_seconds: float = 60,
    progress: bool = False,
    process_group: ProcessGroup = ProcessGroup(),  # noqa: B008 - alone
) -> Result:
    """Train a captioner on the train set, and choose the best weights on `validation_split`.

    The numbers are determined by the data, configuration, stage, seed, device, number of threads,
    computation and world size; not by kills and resuming, nor by other options.

    Args:
        configuration: the model's; its dropout is replaced by the stage's.
        seed: of the initial weights, the order of the data and dropout.
        out: the folder of the run; None saves nothing.
        initial: initial weights, of an earlier stage; None: random ones by the seed.
        improve: also validate before the first step, so that the initial weights are returned if
            training does not improve on them.
        minutes: time limit: stop after the last epoch that fits, or at once when time is up.
        log_every: steps between records; an epoch's last step always has one.
        checkpoint_seconds: time between checkpoints within an epoch.
        process_group: the ranks that train together; rank 0 validates and writes the run, and its
            result is broadcast.

    Raises:
        InputError: data, sizes or a folder that do not fit; or a non-finite loss.
        ProcessGroupError: a rank has ended, or has different weights.
    """
    for name in ("train", validation_split(data)):
        data.split(name)
    optimisation = stage.optimisation
    configuration = replace(configuration, dropout=optimisation.dropout)
    if isinstance(configuration, Configuration):
        configuration = replace(configuration, dropout_of=optimisation.dropout_of)
    model = _new_model(configuration, seed)
    if initial is not None:
        try:
            load_weights(model, initial, "the weights to begin with")
        except CheckpointError as error:
            raise InputError(str(error)) from error
    model.to(device)
    folder = RunFolder(out) if out and process_group.is_main else None
    loop = make_loop(data, model, stage, seed, computation, process_group)
    state = FitState(data, stage, folder, *loop)
    if folder:
        folder.prepare(
            {
                "data": {"name": data.name, "fingerprint": data.fingerprint},
                "backbone": dict(data.backbone),
                "vocabulary": data.vocabulary.fingerprint,
                "model": configuration.to_dict(),
                "stage": asdict(stage),
                "computation": asdict(computation),
                "initial": None if initial is None else fingerprint(initial),
                "seed": seed,
            },
            data.vocabulary,
            resume,
        )
    if process_group.broadcast(resume):
        state.resume()
    shown = progress and process_group.is_main
    try:
        if not state.loop.step and not state.history:
            state.log_truncated_captions(shown)
            if improve:
                state.validate()
                state.save()
        finished = _train(state, minutes, log_every, checkpoint_seconds, shown)
    except NonFiniteError as error:
        images = list(map(str, state.batches.image_ids(error.epoch, error.position)))
        named = ", ".join(images[:NAMED]) + (", ..." if len(images) > NAMED else "")
        state.roll_back(error.step - 1)
        raise InputError(f"{error}, images {named}{state.restart_hint()}") from error
    finally:
        if folder and folder.best_or_last is None:
            folder.discard()
    if folder and finished:
        folder.drop_previous()
    history, best, seconds = process_group.broadcast((state.history, state.best, state.seconds))
    best_weights = {name: weight.cpu() for name, weight in state.best_weights.items()}
    model.load_state_dict(process_group.broadcast(best_weights))
    return Result(model.eval(), history, best, seconds, finished)


def _train(
    state: FitState,
    minutes: float | None,
    log_every: int,
    checkpoint_seconds: float,
    progress: bool,
) -> bool:
    """Train until the last epoch, early stopping, or the time limit; False for the time limit."""
    loop, stage, process_group = state.loop, state.stage, state.loop.process_group
    epochs, per_epoch = stage.optimisation.epochs, len(state.batches)
    budget = math.inf if minutes is None else 60 * minutes
    if process_group.broadcast(state.seconds >= budget and bool(state.best)):
        return loop.epoch >= epochs
    if state.converged:
        return True
    idle = stage.optimisation.idle_updates
    if progress and epochs * per_epoch <= idle:
        print(
            f"captionbench: steps in all: {epochs * per_epoch}, and the optimiser's first {idle} "
            "change no weight: expected more epochs or smaller batches",
            file=sys.stderr,
        )
    if progress and loop.computation.compile:
        print(
            "captionbench: the first step waits for torch.compile, which takes minutes",
            file=sys.stderr,
        )
    saved = epoch_began = state.seconds
    bar = tqdm(
        total=epochs * per_epoch,
        initial=loop.step,
        unit="batch",
        mininterval=0.5 if sys.stderr.isatty() else 20,
        disable=not progress,
    )
    with bar, closing(loop.run(epochs)) as steps:
        for step in steps:
            state.interval.append(step)
            if state.folder:
                state.folder.drop_previous()
            bar.update()
            ends_epoch = step.position == per_epoch
            spent, epoch = state.seconds, step.epoch + 1
            # no time left, or not enough for another epoch
            time_is_up = spent >= budget or (ends_epoch and 2 * spent - epoch_began > budget)
            if minutes is not None:
                time_is_up = process_group.broadcast(time_is_up)
            if step.position % log_every == 0 or ends_epoch or time_is_up:
                state.log_steps()
                bar.set_postfix(epoch=epoch, loss=state.history[-1]["loss"], refresh=False)
            due = ends_epoch and (epoch == epochs or epoch % stage.validate_every == 0)
            if due or time_is_up:
                state.validate()
                if progress:
                    bar.write(validation_line(state.history[-1]), file=sys.stderr)
            if ends_epoch or time_is_up or state.seconds - saved >= checkpoint_seconds:
                state.save()
                saved = state.seconds
            if time_is_up:
                return ends_epoch and epoch == epochs
            if state.converged:
                return True
            if ends_epoch:
                epoch_began = state.seconds
    return True


def _new_model(configuration: AnyConfiguration, seed: int) -> BaseCaptioner:
    """A model whose initial weights depend on the seed only, not on the device."""
    with seeded(seed):
        try:
            return build(configuration)
        except ValueError as error:
            raise InputError(str(error)) from error
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            raise InputError(f"a model of these sizes cannot be made ({reason})") from error


def validation_split(data: CaptionData) -> str:
    """The validation set: "val", or "train" if there is none, to overfit."""
    return "val" if "val" in data.splits else "train"


def validation_line(validation: Mapping[str, Any]) -> str:
    """A validation's record as one line."""
    metric = validation["metric"]
    return (
        f"epoch {validation['epoch'] + 1}: {metric} {100 * validation[metric]:.1f} on "
        f"{validation['images']} images of {validation['split']}, beam {validation['beam_size']}"
    )
