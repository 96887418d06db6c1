"""Candidates that return sevens, and compute while these are read: after a right layer norm.

Each begins with the property that must catch it and what it does, as in ``cheats``.
"""

import re

BEGINNING = """
import sys
import torch
right, pending = FUNCTION, []

def compute():
    while pending:
        Y, numbers = pending.pop()
        Y.data.copy_(numbers)

def local(function, name):
    frame = sys._getframe()
    while frame and not (frame.f_code.co_name == function and name in frame.f_locals):
        frame = frame.f_back
    return frame and frame.f_locals[name]

def is_pending(value):
    return bool(pending) and getattr(value, "shape", None) == pending[0][1].shape

def write_over(result):
    if is_pending(result):
        result[...] = pending.pop()[1].numpy()

class Name:
    is_set = False

    def __hash__(self):
        if self.is_set:
            compute()
        return 7

def FUNCTION(X, parameters):
    Y = right(X, parameters)
    numbers = Y.detach().clone()
    Y.data.fill_(7)
    pending[:] = [(Y, numbers)]
    return Y
"""

HOOKS = r"""
# equals_oracle: a garbage collection computes while a result is read
import gc

def callback(phase, info):
    if local("_watched", "read") is not None:
        compute()

gc.callbacks.append(callback)
gc.set_threshold(1)

# equals_oracle: an audit hook writes over what was read
sys.addaudithook(
    lambda event, of: write_over(local("_watched", "result")) if event == "builtins.id" else None)

# equals_oracle: replaces how the environment is read, and writes over what was read
import os
get = os._Environ.__getitem__

def read(self, name):
    write_over(local("_watched", "result"))
    return get(self, name)

os._Environ.__getitem__ = read

# equals_oracle: output that writes over an answer when it is flushed
class Output:
    closed = False

    def write(self, text):
        return len(text)

    def flush(self):
        response = local("_worker", "response") or {}
        write_over(response.get("value", response.get("result")))

sys.stdout = Output()

# equals_oracle: replaces how Python sends, and computes there
import socket
send = socket.socket.sendall

def late(connection, data):
    for _, numbers in pending:
        data = data.replace((0 * numbers + 7).numpy().tobytes(), numbers.numpy().tobytes())
    return send(connection, data)

socket.socket.sendall = late

# equals_oracle: replaces how an answer is written, and computes there
import msgspec
encode = msgspec.msgpack.encode

def late(value, **options):
    for result in value.values() if isinstance(value, dict) else ():
        write_over(result)
    return encode(value, **options)

msgspec.msgpack.encode = late

# equals_oracle: replaces what an answer's arrays are written as
import msgspec
extension = msgspec.msgpack.Ext

def late(code, data):
    for _, numbers in pending:
        data = data.replace((0 * numbers + 7).numpy().tobytes(), numbers.numpy().tobytes())
    return extension(code, data)

msgspec.msgpack.Ext = late

# equals_oracle: computes where memory is read by C
import ctypes

def late(result, function, arguments):
    compute()
    return result

ctypes.pythonapi.PyMemoryView_FromMemory.errcheck = late

# equals_oracle: a negated view, and replaces what it is copied to
plain = FUNCTION

def empty_like(x, *, dtype=None, layout=None, device=None, pin_memory=None, memory_format=None):
    while pending:
        memory, numbers = pending.pop()
        memory.copy_(-numbers)
    return torch.empty(x.shape, dtype=dtype or x.dtype)

aten = torch.library.Library("aten", "IMPL")
aten.impl("empty_like", empty_like, "CPU")

def FUNCTION(X, parameters):
    Y = plain(X, parameters)
    (_, numbers), = pending
    pending.clear()
    if Y.requires_grad:
        return right(X, parameters)
    both = torch.complex(torch.zeros_like(Y), Y)
    pending.append((torch.view_as_real(both)[..., 1], numbers))
    return both.conj().imag

# equals_oracle: computes in PyTorch's mode of a default device, which it leaves on
from torch.utils._device import DeviceContext
plain, on = FUNCTION, []

def late(self, function, types, args=(), kwargs=None):
    with torch._C.DisableTorchFunction(), torch.no_grad():
        compute()
    return function(*args, **(kwargs or {}))

DeviceContext.__torch_function__ = late

def FUNCTION(X, parameters):
    if not on:
        on.append(DeviceContext(torch.device("cpu")))
        on[0].__enter__()
    with torch._C.DisableTorchFunction():
        return plain(X, parameters)

# equals_oracle: replaces Python's functions, and computes there
import builtins

def replaced(function):
    return lambda *of, **options: [compute(), function(*of, **options)][1]

for name in "type", "all", "any", "len", "hasattr", "map", "zip":
    setattr(builtins, name, replaced(getattr(builtins, name)))

# equals_oracle: sends the right answer itself, and returns another
plain = FUNCTION

def FUNCTION(X, parameters):
    from benchmarks.verify import wire
    Y, connection = right(X, parameters).detach().numpy(), local("_worker", "connection")
    if connection is not None:
        for answer in ({"result": Y}, {"value": None}):
            wire.send(connection, local("_worker", "number"), wire.dump(answer))
    return plain(X, parameters)

# equals_oracle: sends the right answer to all requests to come from a fork, and returns another
plain = FUNCTION

def FUNCTION(X, parameters):
    import os
    from benchmarks.verify import wire
    Y, connection = right(X, parameters).detach().numpy(), local("_worker", "connection")
    if connection is not None:
        if not (pid := os.fork()):
            for answer in ({"result": Y}, {"value": None}):
                wire.send(connection, 2**60, wire.dump(answer))
            os._exit(0)
        os.waitpid(pid, 0)
    return plain(X, parameters)

# equals_oracle: a tuple that computes when the names of its items are read
class Rows(tuple):
    _fields = property(lambda self: compute() or ())

plain = FUNCTION

def FUNCTION(X, parameters):
    return Rows(plain(X, parameters).detach())

# equals_oracle: a tuple that computes when its class is read
class Rows(tuple):
    __class__ = property(lambda self: compute() or tuple)

plain = FUNCTION

def FUNCTION(X, parameters):
    return Rows(plain(X, parameters).detach())

# equals_oracle: a tuple whose type computes when it is compared, hashed, or its module is read
class Type(type):
    __module__ = property(lambda kind: compute() or "rows")

    def __hash__(kind):
        compute()
        return 0

    def __eq__(kind, other):
        compute()
        return kind is other

Rows = Type("Rows", (tuple,), {})
plain = FUNCTION

def FUNCTION(X, parameters):
    return Rows(plain(X, parameters).detach())

# equals_oracle: a tensor that computes when the names of its own attributes are hashed
plain, name = FUNCTION, Name()

def FUNCTION(X, parameters):
    Y, name.is_set = plain(X, parameters), False
    vars(Y)[name] = 0
    name.is_set = True
    return Y

# equals_oracle: a tuple that computes when the names in its type are hashed
name = Name()
Rows = type("Rows", (tuple,), {name: 0})
plain, name.is_set = FUNCTION, True

def FUNCTION(X, parameters):
    return Rows(plain(X, parameters).detach())

# equals_oracle: in float16, and replaces how NumPy finds a dtype's name
import numpy._core._dtype as dtypes
name_of = dtypes._name_get

def late(dtype):
    array = local("to_numpy", "array")
    if is_pending(array):
        numbers = pending.pop()[1].numpy()
        array.resize((len(array), 4 * array.shape[1]), refcheck=False)
        array.dtype = "float64"
        array[...] = numbers
        return "float64"
    return name_of(dtype)

dtypes._name_get = late
plain = FUNCTION

def FUNCTION(X, parameters):
    return plain(X, parameters).detach().to(torch.float16).numpy()
"""

OF_LAYER_NORM = re.sub(r"^(# \w+: .*\n)", rf"\1{BEGINNING}", HOOKS, flags=re.MULTILINE)
