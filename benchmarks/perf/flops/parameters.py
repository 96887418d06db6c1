"""Parameter counts of ExpansionNet v2 for v2's Table VII, from models on the meta device.

The paper's 38 million are those of the captioner alone: its backbone has five times as many.
"""

from __future__ import annotations

import torch
from torch import nn

from benchmarks import records
from benchmarks.kinds import Parameters
from benchmarks.perf.flops import table_vi
from torch_impl.layers.swin import SwinConfiguration, SwinTransformer
from torch_impl.models import Captioner

PAPER, TABLE, ROW = "expansionnet_v2", "VII", "ExpansionNet v2"


def counted() -> dict[str, int]:
    """The parameters of the "captioner" and of its "backbone", Swin-L."""
    with torch.device("meta"):
        captioner = Captioner(table_vi.configuration())
        backbone = SwinTransformer(SwinConfiguration())
    return {"captioner": _parameters(captioner), "backbone": _parameters(backbone)}


def _parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def make_records() -> list[records.Record]:
    """The record of the only row whose model is implemented here; ratios are to that row."""
    numbers = counted()
    return [
        records.make(
            Parameters(
                assumptions=[
                    f"parameters: a vocabulary of {table_vi.VOCABULARY:,} words, without the "
                    f"backbone, Swin-L, which has {numbers['backbone']:,} more"
                ]
            ),
            paper=PAPER,
            table=TABLE,
            row=ROW,
            values={"parameters": numbers["captioner"], "parameters ratio": 1.0},
            status="same data",
            key=records.key_of(counted, numbers),
        )
    ]
