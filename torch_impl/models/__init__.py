"""Captioners: image features in, log-probabilities of the next word out.

All are ``BaseCaptioner``s: ``encode`` returns the memory, ``decode`` is ``states`` followed by
``predict``, and ``init_cache`` returns a cache for decoding one token at a time.
"""

from collections.abc import Mapping
from typing import Any

from torch_impl.models.base import BaseCaptioner
from torch_impl.models.captioner import (
    Captioner,
    Configuration,
    ExpansionNet,
    expansionnet_v1,
    expansionnet_v2,
    transformer,
    transformer_aoa,
)
from torch_impl.models.end_to_end import EndToEnd, EndToEndConfiguration
from torch_impl.models.middle_out import (
    MiddleOutCaptioner,
    MiddleOutConfiguration,
    middle_out_captioner,
    sequence_to_sequence,
)
from torch_impl.models.recurrent import (
    RecurrentCaptioner,
    RecurrentConfiguration,
    SequenceClassifier,
    attentive_nic,
    code_captioner,
    nic,
    read_only_nic,
)

AnyConfiguration = (
    Configuration | EndToEndConfiguration | MiddleOutConfiguration | RecurrentConfiguration
)
FAMILIES = (Configuration, EndToEndConfiguration, MiddleOutConfiguration, RecurrentConfiguration)


def configuration(values: Mapping[str, Any]) -> AnyConfiguration:
    """The inverse of ``to_dict``; without a family it is a ``Captioner``'s.

    Raises:
        ValueError: an unknown family, or a field is missing, unknown or out of range.
    """
    family = values.get("family", "")
    for kind in FAMILIES:
        if kind.family == family:
            return kind.from_dict(values)
    raise ValueError(f"unknown family {family!r} of a configuration")


def build(configuration: AnyConfiguration) -> BaseCaptioner:
    """The captioner of a configuration, with newly initialised weights."""
    if isinstance(configuration, RecurrentConfiguration):
        return RecurrentCaptioner(configuration)
    if isinstance(configuration, MiddleOutConfiguration):
        return MiddleOutCaptioner(configuration)
    if isinstance(configuration, EndToEndConfiguration):
        return EndToEnd.build(configuration)
    return Captioner(configuration)


__all__ = [
    "AnyConfiguration",
    "BaseCaptioner",
    "Captioner",
    "Configuration",
    "EndToEnd",
    "EndToEndConfiguration",
    "ExpansionNet",
    "MiddleOutCaptioner",
    "MiddleOutConfiguration",
    "RecurrentCaptioner",
    "RecurrentConfiguration",
    "SequenceClassifier",
    "attentive_nic",
    "build",
    "code_captioner",
    "configuration",
    "expansionnet_v1",
    "expansionnet_v2",
    "middle_out_captioner",
    "nic",
    "read_only_nic",
    "sequence_to_sequence",
    "transformer",
    "transformer_aoa",
]
