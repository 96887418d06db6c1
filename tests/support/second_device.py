"""A second device without hardware: tensors in the CPU's memory under a GPU's rules.

They say that they are on ``second:0``, and everything runs that a GPU could: an operation that
mixes them with tensors of the CPU is refused, as CUDA refuses it (scalars, index tensors and the
lengths of packed sequences aside), and each read back to the host, for which a GPU would have to
finish its work first, is counted by its place in our code. A copy that does not block is no read:
it holds nothing until an event after it is waited for, which is one unless data of later work came.
"""

import traceback
import types
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

ROOT = Path(__file__).parents[2]
_setup_privateuseone_for_python_backend("second")
SECOND = torch.device("second", 0)

_aten = torch.ops.aten
_autocast = torch.library.Library("_", "IMPL", "AutocastPrivateUse1")
_autocast.fallback(torch.library.fallthrough_kernel)  # autocast leaves its dtypes as they are
COPIES = ("aten::_to_copy", "aten::copy_")
SIZED_BY_VALUES = {
    *(_aten.nonzero.default, _aten.masked_select.default, _aten.equal.default),
    *(_aten._unique2.default, _aten.unique_consecutive.default, _aten.unique_dim.default),
    *(_aten.bincount.default, _aten.multinomial.default, _aten._local_scalar_dense.default),
}
"""What a GPU answers only after it has read values: the size of a result, or a number."""
INDEXING = (_aten.index.Tensor, _aten.index_put.default, _aten.index_put_.default)
HOST_ARGUMENTS = {
    _aten._pack_padded_sequence.default: 1,
    _aten._pack_padded_sequence_backward.default: 2,
    _aten._pad_packed_sequence.default: 1,
    **dict.fromkeys(INDEXING, 1),
}
"""The argument that may be on the host, as on CUDA: lengths, and what indexes."""


class MixedDevicesError(RuntimeError):
    """An operation on tensors of both devices."""


class OnSecond(Tensor):
    """A tensor of the second device; ``held`` is its memory."""

    held: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held):
        made = Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=SECOND,
        )
        made.held = held
        return made

    def __repr__(self):
        return f"OnSecond({self.held})"

    def tolist(self):
        return self.cpu().tolist()

    @classmethod
    def __torch_dispatch__(cls, op, types, args=(), kwargs=None):
        return _run(op, args, kwargs or {})


class Reads:
    """Reads back to the host, by place in our code."""

    def __init__(self):
        self.by_place = Counter()

    def __len__(self):
        return self.by_place.total()


_counting = []
_copying = []
"""Copies to the host that no event was waited for after: their targets and values."""
_arrived = Counter()
"""Tensors copied from the host."""


class _Creating(TorchDispatchMode):
    """Runs what creates tensors on the second device and has none to dispatch by."""

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        return _run(op, args, kwargs or {})


class _FromNumbers(TorchFunctionMode):
    """Makes tensors of Python's numbers on the CPU first: PyTorch does so where no mode sees it."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        options = dict(kwargs or {})
        if func in (torch.tensor, torch.as_tensor) and "device" in options:
            device = options.pop("device")
            return func(*args, **options).to(device)
        if func in (Tensor.__getitem__, Tensor.__setitem__):
            x, key, *value = args
            keys = [
                torch.tensor(list(k)).to(x.device) if isinstance(k, range | list) else k
                for k in (key if isinstance(key, tuple) else (key,))
            ]
            return func(x, tuple(keys), *value)
        return func(*args, **options)


@contextmanager
def second_device():
    """Within it, ``device="second"`` works; gives the reads back to the host."""
    reads = Reads()
    _counting.append(reads)
    try:
        with _FromNumbers(), _Creating():
            yield reads
    finally:
        _counting.remove(reads)


def on_second(value):
    """A module, changed, or tensors within tuples and dictionaries, copied to the second device."""
    if not isinstance(value, nn.Module):
        return tree_map_only(Tensor, lambda x: OnSecond(x.detach().clone()), value)
    moved = {}  # one for all places of a shared one
    for module in value.modules():
        for name, one in module._parameters.items():
            if one is not None and id(one) not in moved:
                copy = nn.Parameter(OnSecond(one.detach().clone()), one.requires_grad)
                moved[id(one)] = moved[id(copy)] = copy
            module._parameters[name] = None if one is None else moved[id(one)]
        for name, buffer in module._buffers.items():
            module._buffers[name] = on_second(buffer)
    return value


def on_host(value):
    """Tensors within tuples and dictionaries, without a read that counts."""
    return tree_map_only(OnSecond, lambda x: x.held, value)


def _place():
    frames = traceback.extract_stack()
    ours = [f for f in frames if Path(f.filename).is_relative_to(ROOT / "torch_impl")]
    return f"{Path(ours[-1].filename).relative_to(ROOT)}:{ours[-1].lineno}" if ours else "a test"


def _read():
    for reads in _counting:
        reads.by_place[_place()] += 1


def _run(op, args, kwargs):
    flat, spec = tree_flatten((args, kwargs))
    held = {id(x.held): x for x in flat if isinstance(x, OnSecond)}
    wanted = kwargs.get("device")
    target = torch.device(wanted).type if wanted is not None else "second" if held else "cpu"
    copies = op._schema.name in COPIES
    if copies and target == "second" and not held:
        _arrived["tensors"] += 1
    if held:
        _refuse_mixed(op, args, kwargs, copies)
        to_host = target == "cpu" if op is not _aten.copy_.default else args[0].device.type == "cpu"
        queued = to_host and kwargs.get("non_blocking")
        if (to_host and not queued) or op in SIZED_BY_VALUES or _indexes_by_mask(op, args):
            _read()
    if op in FUSED and held:
        op = FUSED[op]

    def lent(x):
        if isinstance(x, torch.device) and x.type == "second":
            return torch.device("cpu")
        return x.held if isinstance(x, OnSecond) else x

    args, kwargs = tree_unflatten([lent(x) for x in flat], spec)
    out = op(*args, **{**kwargs, **({"pin_memory": False} if kwargs.get("pin_memory") else {})})
    if target == "cpu":
        if held and queued:
            _copying.append((out, out.clone()))
            out.zero_()
        return out

    def back(x):
        return held[id(x)] if id(x) in held else OnSecond(x)

    if op in PACKING:  # the sizes of packed batches stay on the host
        return back(out[0]), out[1]
    return tree_map_only(Tensor, back, out)


class _Event:
    def record(self):
        self._arrived = _arrived.total()

    def synchronize(self):
        if _arrived.total() == self._arrived:
            _read()
        for target, value in _copying:
            target.copy_(value)
        _copying.clear()


def _refuse_mixed(op, args, kwargs, copies):
    first = HOST_ARGUMENTS.get(op)
    checked = args if first is None else (*args[:first], *args[first + 1 :])
    for x in tree_flatten((checked, kwargs))[0]:
        if isinstance(x, Tensor) and not isinstance(x, OnSecond) and x.dim() and not copies:
            raise MixedDevicesError(f"{op} of {SECOND} and of a tensor {tuple(x.shape)} of the CPU")
    if op is _aten._pack_padded_sequence.default and isinstance(args[1], OnSecond):
        raise MixedDevicesError("lengths of packed sequences must be on the CPU")


def _indexes_by_mask(op, args):
    """Whether an index is a mask, whose number of entries a GPU has to count first."""
    return op in INDEXING and any(x is not None and x.dtype == torch.bool for x in args[1])


PACKING = (_aten._pack_padded_sequence.default, _aten._pad_packed_sequence.default)


def _fused_cell(inputs, hidden, c, b_inputs=None, b_hidden=None):
    """What `nn.LSTMCell` is on a GPU: one kernel, which the CPU has not."""
    gates = inputs + hidden
    for bias in (b_inputs, b_hidden):
        gates = gates if bias is None else gates + bias
    i, f, g, o = gates.chunk(4, dim=1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    c_next = f * c + i * g
    return o * c_next.tanh(), c_next, torch.cat([i, f, g, o], dim=1)


def _fused_cell_backward(dh, dc, c, c_next, gates, has_bias):
    i, f, g, o = gates.chunk(4, dim=1)
    t = c_next.tanh()
    dh = torch.zeros_like(c) if dh is None else dh
    dc = (0 if dc is None else dc) + dh * o * (1 - t**2)
    of_gates = (
        dc * g * i * (1 - i),
        dc * c * f * (1 - f),
        dc * i * (1 - g**2),
        dh * t * o * (1 - o),
    )
    d_gates = torch.cat(of_gates, dim=1)
    return d_gates, dc * f, d_gates.sum(0) if has_bias else None


FUSED = {
    _aten._thnn_fused_lstm_cell.default: _fused_cell,
    _aten._thnn_fused_lstm_cell_backward_impl.default: _fused_cell_backward,
}

_MODULE = types.ModuleType("torch.second")
for _name, _value in {
    "get_amp_supported_dtype": lambda: [torch.float16, torch.bfloat16],
    # found only inside `second_device`
    "is_available": lambda: bool(_counting),
    "is_initialized": lambda: bool(_counting),
    "device_count": lambda: int(bool(_counting)),
    "get_rng_state": lambda _=None: torch.get_rng_state(),
    "set_rng_state": lambda state, _=None: torch.set_rng_state(state),
    "current_device": lambda: 0,
    "Event": _Event,
    "synchronize": lambda *_: None,
    "_is_in_bad_fork": lambda: False,
    "manual_seed_all": lambda _: None,
}.items():
    setattr(getattr(torch, "second", _MODULE), _name, _value)
if not hasattr(torch, "second"):
    torch._register_device_module("second", _MODULE)
