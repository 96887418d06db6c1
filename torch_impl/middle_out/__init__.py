"""Middle-out decoding (Middle-Out equations 4-7), batched: two sides that attend to each other."""

from torch_impl.middle_out.captions import interleave, most_common_word, split
from torch_impl.middle_out.decoder import (
    SELF_ATTENTION,
    Weights,
    attend,
    input_entry,
    lstm_cell,
    run,
    run_by_steps,
    step,
    weight_sizes,
)

__all__ = [
    "SELF_ATTENTION",
    "Weights",
    "attend",
    "input_entry",
    "interleave",
    "lstm_cell",
    "most_common_word",
    "run",
    "run_by_steps",
    "split",
    "step",
    "weight_sizes",
]
