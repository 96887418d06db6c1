"""End to end: a backbone and a captioner of its features as one model (v2 section IV)."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import ClassVar

from torch import Tensor

from torch_impl.common.padding import Lengths
from torch_impl.layers.kv_cache import TransformerCache
from torch_impl.layers.swin import SwinConfiguration, SwinTransformer
from torch_impl.models.base import BaseCaptioner
from torch_impl.models.captioner import Captioner, Configuration


@dataclass(frozen=True)
class EndToEndConfiguration(Configuration):
    """A captioner's configuration and its backbone's.

    Raises:
        ValueError: see ``Configuration`` and ``SwinConfiguration``.
        TypeError: an unknown field of the backbone.
    """

    family: ClassVar[str] = "end_to_end"

    backbone: SwinConfiguration = field(default_factory=SwinConfiguration)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.backbone, SwinConfiguration):
            object.__setattr__(self, "backbone", SwinConfiguration(**self.backbone))

    @property
    def captioner(self) -> Configuration:
        """The configuration without the backbone."""
        return Configuration(**{f.name: getattr(self, f.name) for f in fields(Configuration)})


class EndToEnd(BaseCaptioner):
    """A captioner of images: ``encode`` takes images, not features.

    Raises:
        ValueError: the captioner does not take the backbone's features.
    """

    configuration: EndToEndConfiguration

    def __init__(self, backbone: SwinTransformer, captioner: Captioner) -> None:
        c = captioner.configuration
        if c.d_feature != backbone.d_feature:
            raise ValueError(
                f"the captioner's d_feature is {c.d_feature}, the backbone's {backbone.d_feature}"
            )
        super().__init__(EndToEndConfiguration(**c.to_dict(), backbone=backbone.configuration))
        self.backbone, self.captioner = backbone, captioner

    @classmethod
    def build(cls, configuration: EndToEndConfiguration) -> EndToEnd:
        """A model with newly initialised weights."""
        return cls(SwinTransformer(configuration.backbone), Captioner(configuration.captioner))

    def implement(self, implementation: str) -> EndToEnd:
        """As ``Captioner.implement``."""
        self.captioner.implement(implementation)
        return self

    def encode(self, images: Tensor, lengths: Lengths | None = None) -> Tensor:
        """Images (B, C, H, W), normalised as the backbone's weights expect, to memory (B, L, d).

        ``lengths`` are of the backbone's features (B, L, d_feature): all are valid if None.

        Raises:
            ValueError: images of another size than the backbone's.
        """
        return self.captioner.encode(self.backbone(images), lengths)

    def states(
        self,
        tokens: Tensor,
        memory: Tensor,
        memory_lengths: Lengths | None = None,
        image_index: Tensor | None = None,
    ) -> Tensor:
        return self.captioner.states(tokens, memory, memory_lengths, image_index)

    def predict(self, states: Tensor) -> Tensor:
        return self.captioner.predict(states)

    @property
    def is_stochastic(self) -> bool:
        return self.captioner.is_stochastic

    def init_cache(
        self,
        memory: Tensor,
        memory_lengths: Lengths | None = None,
        num_beams: int = 1,
        max_length: int | None = None,
    ) -> TransformerCache:
        return self.captioner.init_cache(memory, memory_lengths, num_beams, max_length)
