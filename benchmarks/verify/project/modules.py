"""Call a module with given parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from torch_impl.models import BaseCaptioner


def call(
    module: Callable[[], nn.Module], parameters: Mapping[str, Tensor], *arguments: Any, **named: Any
) -> Any:
    """The module's output with ``parameters`` instead of its own, which are not initialised."""
    with torch.device("meta"):
        layer = module()
    return functional_call(layer, dict(parameters), arguments, named)


def read_by_steps(
    model: Callable[[], BaseCaptioner],
    parameters: Mapping[str, Any],
    features: Any,
    tokens: Any,
) -> Tensor:
    """The output (T, V) of a captioner for NumPy's arrays, a token at a time, by its cache.

    The cache is of two images of two hypotheses. After each token the case's hypothesis takes both
    places, of which it keeps the other; the other image keeps its hypotheses, and has a row more.
    """
    with torch.device("meta"):
        captioner = model()
    weights = {name: torch.as_tensor(value) for name, value in parameters.items()}
    captioner.load_state_dict(weights, assign=True)
    image, words = torch.tensor(features), torch.tensor(tokens)
    longer = torch.cat([image, image[:1]])
    images, lengths = torch.stack([longer.flip(0), longer]), torch.tensor([len(longer), len(image)])
    cache = captioner.init_cache(captioner.encode(images, lengths), lengths, num_beams=2)
    found = []
    for t, word in enumerate(torch.stack([words, words.flip(0)], 1)):  # (2,)
        found.append(cache.step(word.roll(t).expand(2, 2))[1, t % 2])
        cache.reorder(torch.tensor([[0, 1], [t % 2, t % 2]]))
    return torch.stack(found)


def select(parameters: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The parameters whose names start with ``prefix``, which is removed."""
    return {
        name.removeprefix(prefix): value
        for name, value in parameters.items()
        if name.startswith(prefix)
    }
