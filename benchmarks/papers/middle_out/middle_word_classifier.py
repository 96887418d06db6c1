"""The middle-word classifier (Middle-Out, sections 3.3 and 4.2): an LSTM and a softmax.

It predicts the middle word of each image. It is trained separately, before the decoders; its
weights are those of the epoch with the best accuracy on the validation set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm import tqdm

from benchmarks import records
from benchmarks.data import Split
from benchmarks.data.batches import chunks, padded_features
from benchmarks.data.middle_words import MiddleWords
from benchmarks.papers.experiment import Place
from benchmarks.training import work_file
from benchmarks.training.objective import seeded
from torch_impl.models import SequenceClassifier

BATCH = 32
_EVALUATED = 100
"""Batch size of evaluation."""


@dataclass(frozen=True)
class Schedule:
    """A classifier's training by Adam."""

    lr: float
    epochs: int


def trained(
    words: MiddleWords, hidden_size: int, schedule: Schedule, seed: int, place: Place
) -> SequenceClassifier:
    """Train the classifier of ``words.candidates``, or resume it.

    Training images whose word is not a candidate are left out.
    """
    train, known = words.data.splits["train"], set(words.candidates)
    ids = [image_id for image_id in train.image_ids if words.of_image[image_id] in known]
    classes = {word: i for i, word in enumerate(words.candidates)}
    with seeded(seed):
        model = SequenceClassifier(train.store.d_feature, hidden_size, len(classes))
    model.to(place.device)
    optimiser = torch.optim.Adam(model.parameters(), lr=schedule.lr)
    key = records.key_of(
        trained, words.data.fingerprint, words.candidates, hidden_size, schedule, seed
    )
    path = place.work / f"middle-words-{key}.safetensors"
    done, best, weights = 0, -1.0, dict(model.state_dict())
    if path.exists():
        kept = work_file.load(path, {"model": model}, optimiser)
        done, best, weights = kept["done"], kept["best"], kept["weights"]
    epochs = range(done, schedule.epochs)
    for epoch in tqdm(epochs, "middle words", disable=not place.progress, leave=False):
        order = np.random.default_rng((seed, epoch)).permutation(len(ids))
        model.train()
        for batch in chunks([ids[i] for i in order], BATCH):
            expected = torch.tensor([classes[words.of_image[image_id]] for image_id in batch])
            loss = F.nll_loss(_log_probs(model, train, batch), expected.to(place.device))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        right = accuracy(words, predicted(model, words, "val"))
        if right > best:
            best = right
            weights = {name: x.detach().clone() for name, x in model.state_dict().items()}
        values = {"done": epoch + 1, "best": best, "weights": weights}
        work_file.save(path, {"model": model}, optimiser, values)
    model.load_state_dict(weights)
    return model.eval()


@torch.no_grad()
def predicted(model: SequenceClassifier, words: MiddleWords, split: str) -> dict[int, str]:
    """The predicted word of each image of a split."""
    model.eval()
    part = words.data.splits[split]
    found: dict[int, str] = {}
    for image_ids in chunks(part.image_ids, _EVALUATED):
        best = _log_probs(model, part, image_ids).argmax(-1).tolist()
        found |= {i: words.candidates[place] for i, place in zip(image_ids, best, strict=True)}
    return found


def accuracy(words: MiddleWords, given: dict[int, str]) -> float:
    """The fraction of images whose given word is their middle word."""
    return sum(word == words.of_image[image_id] for image_id, word in given.items()) / len(given)


def _log_probs(model: SequenceClassifier, part: Split, image_ids: Sequence[int]) -> Tensor:
    device = next(model.parameters()).device
    features, lengths = padded_features(part.store, image_ids)
    found: Tensor = model(features.to(device), lengths.to(device))
    return found
