"""Faults of the backbone and of how the authors' weights are read."""

from __future__ import annotations

from tests.faults.plant import Fault

NAMES = "test_released.py::test_a_released_model_is_the_papers_equations_on_its_names"
SWIN = "test_swin.py::test_features_are_the_paper_s_token_by_token"

RELEASED = (
    Fault(
        "class a and class b",
        "the released class a is taken for the stream of -M",
        "torch_impl.checkpoints.released:_expansion",
        '"class_a_embed": "value_1", "class_b_embed": "value_2"',
        '"class_a_embed": "value_2", "class_b_embed": "value_1"',
        NAMES,
    ),
    Fault(
        "code executed",
        "a released file is read with whatever code is in it",
        "torch_impl.checkpoints.released:_read",
        "weights_only=True",
        "weights_only=False",
        "test_released_files.py::test_code_in_a_file_is_refused_and_not_executed",
    ),
    Fault(
        "last norm dropped",
        "the backbone's features are those before its last norm",
        "torch_impl.layers.swin:SwinTransformer.forward",
        "self.norm(x.flatten(1, 2))",
        "x.flatten(1, 2)",
        SWIN,
    ),
    Fault(
        "order of heads",
        "a head's channels are taken for the channels of every head",
        "torch_impl.layers.swin:WindowAttention.forward",
        ".unflatten(-1, (3, self.num_heads, -1))",
        ".unflatten(-1, (3, -1, self.num_heads)).transpose(-1, -2)",
        SWIN,
    ),
    Fault(
        "order of neighbours",
        "of four tokens that become one the column varies before the row",
        "torch_impl.layers.swin:PatchMerging.forward",
        "for column in (0, 1) for row in (0, 1)",
        "for row in (0, 1) for column in (0, 1)",
        SWIN,
    ),
    Fault(
        "edges meet",
        "shifted windows let tokens of two edges of the image see each other in columns",
        "torch_impl.layers.swin:shift_mask",
        "2 * came_round[:, None] + came_round",
        "came_round[:, None] + 0 * came_round",
        SWIN,
    ),
)
