"""A small training by the library: its recipe, its captioner, its data, and what a step says."""

from dataclasses import replace

import torch

from torch_impl.models import Configuration
from torch_impl.training import Batch, data_generator
from torch_impl.training.optimisation import OPTIMISATION_PRESETS

RECIPE = replace(
    OPTIMISATION_PRESETS["v2-as-run"], lr=3e-3, warmup=3, schedule="linear", dropout=0.2
)
CONFIGURATION = Configuration(
    vocabulary_size=11,
    d_feature=5,
    encoder="static:3,2",
    decoder="dynamic:2",
    encoder_reduction="linear",
    decoder_reduction="linear",
    d_model=8,
    d_ff=12,
    num_heads=2,
    num_encoder_layers=1,
    num_decoder_layers=1,
    max_length=9,
    dropout=RECIPE.dropout,
)


class RandomBatches:
    """Random features and captions; two captions describe image 0, one each of the others."""

    def __init__(self, count, seed=0, images=3):
        self.count, self.seed, self.images = count, seed, images

    def __len__(self):
        return self.count

    def epoch(self, epoch, start):
        random = data_generator(self.seed, epoch)
        batches = [self._batch(random) for _ in range(self.count)]
        return iter(batches[start:])

    def _batch(self, random):
        captions = self.images + 1
        features = torch.tensor(random.normal(size=(self.images, 4, 5)), dtype=torch.float32)
        tokens = torch.tensor(random.integers(3, 11, size=(captions, 6)))
        tokens[:, 0], tokens[:, -1] = 1, 2
        lengths = torch.tensor(random.integers(1, 5, size=self.images))
        images = torch.tensor([0, *range(self.images)])
        return Batch(features, lengths, tokens, images)


def numbers(step):
    """All that a step says of itself but its clocks."""
    return (
        step.step,
        step.epoch,
        step.position,
        step.loss,
        step.reward,
        step.gradient_norm,
        step.learning_rate,
        step.captions,
    )
