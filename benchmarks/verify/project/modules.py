"""Call a module with given parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from torch_impl.models import BaseCaptioner, Captioner
from torch_impl.training.sampling import MaskedCache


def call(
    module: partial[Any], parameters: Mapping[str, Tensor], *arguments: Any, **named: Any
) -> Any:
    """The output of the module that ``module()`` is, with ``parameters`` instead of its own.

    It is built once for many calls, as by its users: to build it takes longer than a small layer.

    Raises:
        KeyError: it has no such parameter, or one is missing.
    """
    try:
        layer, owners = _built(module.func, module.args, (*module.keywords.items(),))
    except TypeError:  # an argument is a list
        layer, owners = _built.__wrapped__(module.func, module.args, (*module.keywords.items(),))
    if parameters.keys() != owners.keys():
        raise KeyError(f"parameters {sorted(parameters)}, expected {sorted(owners)}")
    own = [(owner, name, owner[name]) for owner, name in owners.values()]
    try:
        for whole, value in parameters.items():
            owner, name = owners[whole]
            owner[name] = value
        return layer(*arguments, **named)
    finally:
        for owner, name, value in own:
            owner[name] = value


Owners = dict[str, tuple[dict[str, Any], str]]
"""For each parameter's name, the dictionary of the submodule that has it, and its name there."""


@lru_cache(maxsize=64)
def _built(
    module: Callable[..., nn.Module], arguments: tuple[Any, ...], named: tuple[Any, ...]
) -> tuple[nn.Module, Owners]:
    """A module without memory for its parameters, and where these are."""
    with torch.device("meta"):
        layer = module(*arguments, **dict(named))
    owners: Owners = {}
    for whole, _ in layer.named_parameters(remove_duplicate=False):
        path, _, name = whole.rpartition(".")
        owners[whole] = layer.get_submodule(path)._parameters, name
    return layer, owners


BEAMS = (8, 4)
"""Numbers of hypotheses of an image that are read by steps: as many as the largest beam has, and so
few that a step has products of its own (``layers.kv_cache.FEW_ROWS``)."""


def read_by_steps(
    model: Callable[[], BaseCaptioner],
    parameters: Mapping[str, Any],
    features: Any,
    tokens: Any,
    masked: bool = False,
) -> Tensor:
    """The output (T, V) of a captioner for NumPy's arrays, a token at a time, by its cache.

    The cache is of some ``BEAMS`` of two images, or of three if the number of tokens is odd. After
    each token the case's hypothesis takes all places of its image, of which it keeps the next; the
    other images keep their hypotheses, and the first has a row more. A ``masked`` cache, of a
    dropout of 0, has samples instead, each in its place.
    """
    with torch.device("meta"):
        captioner = model()
    weights = {name: torch.as_tensor(value) for name, value in parameters.items()}
    captioner.load_state_dict(weights, assign=True)
    image, words = torch.as_tensor(features), torch.as_tensor(tokens)
    longer = torch.cat([image, image[:1]])
    B = 2 + len(words) % 2
    images = torch.stack([longer.flip(0), longer, longer][:B])
    lengths = torch.tensor([len(longer), len(image), max(len(image) - 1, 1)][:B])
    K = BEAMS[len(image) % 2]
    of = captioner.encode(images, lengths), lengths
    cache: Any = captioner.init_cache(*of, num_beams=K)
    if masked:
        cache = MaskedCache(cast(Captioner, captioner.train()), *of, K, len(words))
    found, places = [], torch.arange(K).repeat(B, 1)
    for t, word in enumerate(torch.stack([words, *[words.flip(0)] * (K - 1)], 1)):  # (K,)
        place = -1 if masked else -t % K  # the last after the first
        found.append(cache.step(word.roll(place).expand(B, K))[1, place])
        if not masked:
            places[1] = place
            cache.reorder(places)
    return torch.stack(found)


def call_beside(
    module: partial[Any], parameters: Mapping[str, Tensor], features: Tensor, tokens: Tensor
) -> Tensor:
    """The output (T, V) of a captioner for an image: of odd rows between a longer and a shorter."""
    if len(features) % 2 == 0:
        return cast(Tensor, call(module, parameters, features[None], tokens[None])[0])
    longer = torch.cat([features, features[:1]]).flip(0)
    padded = torch.cat([features, torch.full_like(features[:1], 1000.0)])
    rows = [len(longer), len(features), max(len(features) - 1, 1)]
    images = torch.stack([longer, padded, padded])
    words = torch.stack([tokens.flip(0), tokens, tokens.flip(0)])
    lengths = torch.tensor(rows, device=features.device)
    return cast(Tensor, call(module, parameters, images, words, lengths)[1])


def select(parameters: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The parameters whose names start with ``prefix``, which is removed."""
    return {
        name.removeprefix(prefix): value
        for name, value in parameters.items()
        if name.startswith(prefix)
    }
