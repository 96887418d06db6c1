"""A stage's training loop: its batches, its reconstructor and its reward, if any."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from benchmarks.data import CaptionData, Split
from benchmarks.data.batches import CaptionBatches, ImageBatches, images_with_references
from benchmarks.data.vocabulary import UNKNOWN_ID, Vocabulary
from benchmarks.errors import InputError
from benchmarks.training.configuration import Stage
from torch_impl.cider import CiderD
from torch_impl.models import BaseCaptioner
from torch_impl.recurrent.auto_reconstructor import AutoReconstructor
from torch_impl.training import CrossEntropyTraining, SelfCriticalTraining
from torch_impl.training.computation import Computation
from torch_impl.training.distributed import ProcessGroup

AnyLoop = CrossEntropyTraining | SelfCriticalTraining
AnyBatches = CaptionBatches | ImageBatches


def make_loop(
    data: CaptionData,
    model: BaseCaptioner,
    stage: Stage,
    seed: int,
    computation: Computation,
    process_group: ProcessGroup,
) -> tuple[AnyLoop, AnyBatches]:
    """The training loop of ``model`` on the train set, and its batches.

    Raises:
        InputError: the split has no captions, or sizes do not fit the model.
    """
    split, optimisation = data.splits["train"].first(stage.images), stage.optimisation
    options: dict[str, Any] = {"seed": seed, "process_group": process_group}
    on_model = {**options, "computation": computation}
    if stage.objective == "self_critical":
        image_batches = ImageBatches(split, optimisation.batch_size, **options)
        try:
            reward = cider_d(split, data.vocabulary).to(next(model.parameters()).device)
            loop: AnyLoop = SelfCriticalTraining(
                model,
                image_batches,
                optimisation,
                reward,
                num_samples=stage.num_samples,
                max_length=stage.max_length,
                baseline=stage.baseline,
                **on_model,
            )
        except ValueError as error:
            raise InputError(str(error)) from error
        return loop, image_batches
    batches = CaptionBatches(
        split,
        data.vocabulary,
        optimisation.batch_size,
        captions_per_image=stage.captions_per_image,
        max_length=model.max_length,
        window=stage.window,
        **options,
    )
    reconstructor = None
    if stage.lambda_:
        vocabulary = model.vocabulary
        assert isinstance(vocabulary, nn.Linear)
        with seeded(seed):
            reconstructor = AutoReconstructor(vocabulary.in_features)
        reconstructor.to(vocabulary.weight.device)
    loop = CrossEntropyTraining(
        model,
        batches,
        optimisation,
        reconstructor=reconstructor,
        lambda_=stage.lambda_,
        sampling=lambda step: stage.sampling_rate(step // len(batches)),
        **on_model,
    )
    return loop, batches


def cider_d(split: Split, vocabulary: Vocabulary) -> CiderD:
    """The self-critical reward: CIDEr-D against the split's references, with end tokens.

    Document frequencies are the split's. Unknown words of references get ids of their own, so that
    generating "unk" is not rewarded.

    Raises:
        ValueError: more different words than ``CiderD`` has ids for.
    """
    strangers: defaultdict[str, int] = defaultdict(lambda: len(vocabulary) + len(strangers))

    def ids(text: str) -> list[int]:
        words = vocabulary.tokenise(text)
        _, *known, end = vocabulary.encode(words)
        named = zip(words, known, strict=True)
        return [*(strangers[word] if i == UNKNOWN_ID else i for word, i in named), end]

    return CiderD(
        [[ids(text) for text in split.references[i]] for i in images_with_references(split)]
    )


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Within, the CPU's random numbers are determined by the seed; the outer state is restored."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
