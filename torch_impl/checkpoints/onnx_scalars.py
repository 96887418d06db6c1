"""Exact scalars in an ONNX graph, in the precision where they are used.

The exporter's own translation rounds every scalar to float32 first, even in a float64 graph.
"""

from typing import Any

import onnx_ir
import torch
from onnxscript import DOUBLE
from onnxscript import opset18 as op


def scalar(
    s: DOUBLE, dtype: int = 1, layout: str = "", device: str = "", pin_memory: bool = False
) -> Any:
    """``aten::scalar_tensor`` of ONNX's ``dtype``; ``s`` is a number or a graph's value."""
    if isinstance(s, int | float):
        value: Any = onnx_ir.tensor(s, dtype=onnx_ir.DataType(dtype))
        return op.Constant(value=value)
    return op.Cast(s, to=dtype)


TRANSLATIONS: dict[Any, Any] = {torch.ops.aten.scalar_tensor.default: scalar}
