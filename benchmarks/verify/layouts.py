"""How the arrays of a candidate's arguments lie in memory, and what they are.

A layout is "plain" (contiguous), "broadcast" (stride zero along each axis on which all entries are
equal), or one of those below. One of ``INFERENCE`` may follow, or stand for "plain" in it; of a
gradient ``REFILLED``, ``BESIDE`` or ``CHAINED`` may come first.
"""

from __future__ import annotations

from benchmarks.verify.originals import own_builtins

own_builtins(globals())

VIEWS = ("strided", "columns", "transposed", "offset")
"""Every second entry of a larger array, the last entries of each row of one, strides in reverse
order, and contiguous from the second entry of a larger array on, so not aligned.
"""

ROWS = "rows"
"""The first rows of each sequence of a batch of longer ones."""

OWN = "own"
"""Arrays that own their memory."""

REQUIRING = "requiring"
"""All arrays are parameters."""

MODULE = "module"
"""Those in a mapping are: of a module's first layer."""

ACCUMULATED = "accumulated"
"""The same, with gradients, to which others are added."""

INFERRED = "inferred"
"""As in a module, and the others are made in inference mode, in which the call must be, too."""

COMPUTED = "computed"
"""Of a gradient: results of operations, no leaves."""

HIDDEN = "hidden"
"""Of a gradient: those in a mapping are parameters, the others such results."""

OF_MODULES = (REQUIRING, MODULE, ACCUMULATED, INFERRED, HIDDEN)
"""Layouts in which a mapping is ordered, and holds parameters."""

RENEWED = "renewed"
"""Arrays that get other numbers are others each time, in the memory and with the identity of those
before, as where these have been freed.
"""

SLICES = "slices"
"""They are another part of one array each time, as parts of a data set are."""

RETURNED = "returned"
"""Arrays, but for those in a mapping, are the last result, or parts of it, if their shapes are.

Of a gradient, that of a call before.
"""

MOVED = RENEWED, SLICES, RETURNED

COPIED = (*VIEWS, ROWS, OWN, INFERRED, SLICES, RETURNED)
"""Layouts of arrays that are not in the memory of a case's own."""

INFERENCE = ("no_grad", "inference_mode")
"""PyTorch's modes without gradients."""

EVALUATION = (f"{MODULE} no_grad", f"{INFERRED} inference_mode")
"""As a module's layers are evaluated."""

REFILLED = "refilled"
"""Of a gradient in tensors that had other numbers, and their backward pass, before."""


AGAIN = OWN, COMPUTED
"""Of a gradient: the arguments are called on without gradients before, and again after the backward
pass, when there are other numbers in the result.
"""

BESIDE = "beside"
"""Of a gradient that has many other calls, of the same mappings, before its backward pass, when
nothing but its graph is left of the call.
"""

CHAINED = "chained"
"""Of a gradient: the first argument of the shape of the result on others, or of its first row, is
that.
"""


def of_arrays(layout: str) -> str:
    """A gradient's layout without ``REFILLED``, ``BESIDE`` or ``CHAINED``."""
    for name in (REFILLED, BESIDE, CHAINED):
        layout = layout.removeprefix(name)
    return layout.strip() or "plain"
