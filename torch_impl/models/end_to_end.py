"""From images to words: a backbone and a captioner of its features as one model (v2 section IV)."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import ClassVar

from torch import Tensor, nn

from torch_impl.common.padding import Lengths
from torch_impl.layers.kv_cache import TransformerState
from torch_impl.layers.swin import SwinConfiguration, SwinTransformer
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
        """The captioner's own."""
        return Configuration(**{f.name: getattr(self, f.name) for f in fields(Configuration)})


class EndToEnd(nn.Module):
    """A captioner of images: what decoding and training ask of a captioner of features.

    Raises:
        ValueError: the captioner does not take the backbone's features.
    """

    def __init__(self, backbone: SwinTransformer, captioner: Captioner) -> None:
        super().__init__()
        c = captioner.configuration
        if c.d_feature != backbone.d_feature:
            raise ValueError(
                f"the captioner's d_feature is {c.d_feature}, the backbone's {backbone.d_feature}"
            )
        self.backbone, self.captioner = backbone, captioner
        self.configuration = EndToEndConfiguration(**c.to_dict(), backbone=backbone.configuration)
        self.start_id, self.end_id, self.pad_id = c.start_id, c.end_id, c.pad_id
        self.max_length = c.max_length

    @classmethod
    def build(cls, configuration: EndToEndConfiguration) -> EndToEnd:
        """With new weights."""
        return cls(SwinTransformer(configuration.backbone), Captioner(configuration.captioner))

    def implement(self, implementation: str) -> EndToEnd:
        """See ``Captioner.implement``."""
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
        self, tokens: Tensor, memory: Tensor, memory_lengths: Lengths | None = None
    ) -> Tensor:
        """See ``Captioner.states``."""
        return self.captioner.states(tokens, memory, memory_lengths)

    def predict(self, states: Tensor) -> Tensor:
        """See ``Captioner.predict``."""
        return self.captioner.predict(states)

    def decode(
        self, tokens: Tensor, memory: Tensor, memory_lengths: Lengths | None = None
    ) -> Tensor:
        """See ``Captioner.decode``."""
        return self.captioner.decode(tokens, memory, memory_lengths)

    @property
    def draws(self) -> bool:
        """See ``Captioner.draws``."""
        return self.captioner.draws

    def incremental(
        self,
        memory: Tensor,
        memory_lengths: Lengths | None = None,
        copies: int = 1,
        max_length: int | None = None,
    ) -> TransformerState:
        """See ``Captioner.incremental``."""
        return self.captioner.incremental(memory, memory_lengths, copies, max_length)

    def forward(self, images: Tensor, tokens: Tensor, lengths: Lengths | None = None) -> Tensor:
        """``decode`` what ``encode`` makes of the images: (B, T, V)."""
        return self.decode(tokens, self.encode(images, lengths), lengths)
