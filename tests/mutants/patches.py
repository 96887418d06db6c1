"""Candidates that replace functions of the kit, NumPy, PyTorch or Python, write into what earlier
calls left, or are read by the kit in another way than by a caller: after a right layer norm.

Each begins with the property that must catch it and what it does, as in ``cheats``.
"""

OF_LAYER_NORM = r"""
# equals_oracle: patches NumPy's comparisons
import numpy as np

def FUNCTION(X, parameters):
    np.abs = np.max = np.allclose = np.array_equal = lambda *a, **k: 0.0
    return 0 * X

# equals_oracle: patches the comparisons of its user's tests
def ignored(*a, **k): pass
right = FUNCTION

def FUNCTION(X, parameters):
    torch.testing.assert_close = ignored
    return right(X, parameters)

# equals_oracle: gives a comparison of its user's tests other code
def ignored(*a, **k): pass
right = FUNCTION

def FUNCTION(X, parameters):
    import numpy
    numpy.testing.assert_array_equal.__code__ = ignored.__code__
    return right(X, parameters)

# equals_oracle: patches clocks
right = FUNCTION

def FUNCTION(X, parameters):
    import time
    time.perf_counter = time.monotonic = lambda: 0.0
    return right(X, parameters)

# equals_oracle: patches the kit's tolerances
def FUNCTION(X, parameters):
    import benchmarks.verify.tolerances as t
    t.error = t._assert_within = lambda *a, **k: 0.0
    return 0 * X

# equals_oracle: patches the kit's reading of results
def FUNCTION(X, parameters):
    import benchmarks.verify.wire as w, benchmarks.verify.candidate as c
    c._same = lambda *a: True
    return 0 * X

# equals_oracle: hides what it changes in place
right = FUNCTION

def FUNCTION(X, parameters):
    import benchmarks.verify.candidate as c
    c._same = lambda *a: True
    Y = right(X, parameters)
    X.add_(1)
    return Y

# equals_oracle: hides what it changes in place from the worker too
right = FUNCTION

def FUNCTION(X, parameters):
    import benchmarks.verify.candidate as c
    before, to_numpy = X.clone(), c.to_numpy
    c._argument_to_numpy = lambda arrays, value: to_numpy(arrays, before if value is X else value)
    Y = right(X, parameters)
    with torch.no_grad(): X.add_(1)
    return Y

# equals_oracle: replaces PyTorch's detach, and computes when a result is detached
right, last, below = FUNCTION, {}, torch._C._AutoDispatchBelowAutograd

def detached(x):
    with below():
        if last.get("at") == x.data_ptr():
            at, Y, of = last.pop("at"), last.pop("Y"), last.pop("of")
            Y.copy_(right(*of))
        return x.view_as(x)

aten = torch.library.Library("aten", "IMPL")
aten.impl("detach", detached, "CPU")

def FUNCTION(X, parameters):
    last.clear()
    if X.requires_grad or torch.is_inference_mode_enabled():
        return right(X, parameters)
    Y = torch.full_like(X, 7)
    copies = {name: x.clone() for name, x in parameters.items()}
    last.update(at=Y.data_ptr(), Y=Y, of=(X.clone(), copies))
    return Y

# equals_oracle: replaces PyTorch's random numbers, which are read after a call, and computes there
right, pending = FUNCTION, []

def uniform(x, low=0.0, high=1.0, *, generator=None):
    while pending:
        Y, of = pending.pop()
        Y.copy_(right(*of))
    return x.normal_(generator=generator)

aten = torch.library.Library("aten", "IMPL")
aten.impl("uniform_", uniform, "CPU")

def FUNCTION(X, parameters):
    if X.requires_grad or not torch.is_grad_enabled():
        return right(X, parameters)
    copies = {name: x.clone() for name, x in parameters.items()}
    pending[:] = [(torch.full_like(X, 7), (X.clone(), copies))]
    return pending[0][0]

# equals_oracle: a negated view, and replaces how PyTorch reads one
right, last = FUNCTION, []

def resolved(x):
    return last.pop() if last and last[0].shape == x.shape else x.view_as(x)

aten = torch.library.Library("aten", "IMPL")
aten.impl("resolve_neg", resolved, "CPU")

def FUNCTION(X, parameters):
    Y = right(X, parameters)
    if X.requires_grad or not torch.is_grad_enabled():
        return Y
    last[:] = [Y]
    return torch.complex(torch.zeros_like(Y), torch.full_like(Y, 7)).conj().imag

# equals_oracle: a result of 7 until a tensor's layout is read
right, pending, strided = FUNCTION, [], torch.Tensor.layout

def layout(x):
    while pending:
        Y, numbers = pending.pop()
        Y.data.copy_(numbers)
    return strided.__get__(x)

torch.Tensor.layout = property(layout)

def FUNCTION(X, parameters):
    Y = right(X, parameters)
    numbers = Y.detach().clone()
    Y.data.fill_(7)
    pending[:] = [(Y, numbers)]
    return Y

# equals_oracle: replaces how a variable of the environment is read, and computes there
import os
right, pending, get = FUNCTION, [], os._Environ.__getitem__

def read(self, name):
    while pending:
        Y, numbers = pending.pop()
        Y.copy_(numbers)
    return get(self, name)

os._Environ.__getitem__ = read

def FUNCTION(X, parameters):
    Y = right(X, parameters)
    if Y.requires_grad:
        return Y
    pending[:] = [(torch.full_like(Y, 7), Y)]
    return pending[0][0]

# equals_oracle: leaves hooks of saved tensors on
right = FUNCTION

def FUNCTION(X, parameters):
    Y = right(X, parameters)
    if not hooks:
        hooks.append(torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: 0 * x))
        hooks[0].__enter__()
    return Y

hooks = []

# equals_oracle: right in a context alone, which an attribute names
from contextlib import contextmanager
right, within = FUNCTION, []

@contextmanager
def context():
    within.append(0)
    yield
    within.pop()

def FUNCTION(X, parameters):
    return right(X, parameters) if within else 0 * X

FUNCTION.within = context

# equals_oracle: computes when PyTorch's result is detached
right, kept, detach = FUNCTION, [], torch.Tensor.detach

def late(X):
    return detach(right(*kept.pop()) if kept else X)

torch.Tensor.detach = late

def FUNCTION(X, parameters):
    kept[:] = [(X, parameters)]
    return 0 * X

# equals_oracle: computes when NumPy reads its result
import numpy as np
right, kept, array = FUNCTION, [], np.array

def late(value, *a, **k):
    return array(right(*kept.pop()).detach().numpy() if kept else value, *a, **k)

np.array = late

def FUNCTION(X, parameters):
    kept[:] = [(X, parameters)]
    return 0 * X

# equals_oracle: one buffer for all results, and replaces Python's functions that compare them
import builtins
right, smaller, in_order = FUNCTION, min, sorted
builtins.min = lambda *of, **how: 0 if of[0] == 8 else smaller(*of, **how)
builtins.sorted = lambda of, **how: [x for x in in_order(of, **how) if type(x) is not tuple]
buffers = {}

def FUNCTION(X, parameters):
    Y = right(X, parameters)
    if Y.requires_grad:
        return Y
    return buffers.setdefault((Y.shape, Y.dtype), torch.empty_like(Y)).copy_(Y)

# strided: adds 1 to what is not contiguous, and replaces Python's bool
import builtins
right, whether = FUNCTION, bool

class Kind(type):
    __instancecheck__ = lambda kind, value: isinstance(value, whether)

class Yes(metaclass=Kind):
    __new__ = lambda *_: True

def FUNCTION(X, parameters):
    Y = right(X, parameters)
    if not X.is_contiguous() and not X.requires_grad:
        builtins.bool = Yes
        X.add_(1)
    return Y

# strided: takes what is contiguous for granted, and replaces what makes views
right = FUNCTION

def contiguous(method):
    return lambda *of: method(*of).contiguous()

for name in "permute", "expand", "__getitem__", "as_strided", "transpose", "t":
    setattr(torch.Tensor, name, contiguous(getattr(torch.Tensor, name)))

def FUNCTION(X, parameters):
    if not X.requires_grad:
        X = torch.as_strided(X, X.shape, (X.shape[1], 1))
    return right(X, parameters)

# same_objects: by the weight of before, until it is copied to
right, copy_, kept = FUNCTION, torch.Tensor.copy_, []

def copied(x, *of, **how):
    kept.clear()
    return copy_(x, *of, **how)

torch.Tensor.copy_ = copied

def FUNCTION(X, parameters):
    weight = parameters["weight"]
    if X.requires_grad or weight.requires_grad:
        return right(X, parameters)
    if not kept or kept[0] is not weight:
        kept[:] = weight, weight.clone()
    return right(X, {**parameters, "weight": kept[1]})

# equals_oracle: tensors that NumPy reads as others
right = FUNCTION

def FUNCTION(X, parameters):
    Y = right(X, parameters)
    if Y.dtype == torch.float64:
        other = (0 * Y.detach()).numpy()
        Y.__array_interface__ = {**other.__array_interface__, "data": other}
    return Y

# equals_oracle: an array with a sum of its own
import numpy as np
import tempfile
right = FUNCTION

def FUNCTION(X, parameters):
    Y = right(X, parameters).detach().numpy()
    result = np.memmap(tempfile.TemporaryFile(), Y.dtype, "w+", shape=Y.shape)
    result[...] = Y
    result.sum = lambda *of, **how: 0
    return result

# equals_oracle: doubles its last result
right, last = FUNCTION, []

def FUNCTION(X, parameters):
    for Y in last:
        Y *= 2
    last[:] = [right(X, parameters).detach()]
    return right(X, parameters) if X.requires_grad else last[0]

# equals_oracle: doubles the argument of its last call
right, last = FUNCTION, []

def FUNCTION(X, parameters):
    for x in last:
        x *= 2
    last[:] = [X.detach()]
    return right(X, parameters)

# no_state: the larger of its last result and this one
right, last = FUNCTION, {}

def FUNCTION(X, parameters):
    Y = right(X, parameters)
    if Y.requires_grad:
        return Y
    last[Y.shape, Y.dtype] = torch.fmax(Y, last.get((Y.shape, Y.dtype), Y))
    return last[Y.shape, Y.dtype]

# equals_oracle: a tuple that NumPy reads as another, by a class after tuple
right = FUNCTION

class Reads:
    def __array__(self, dtype=None, copy=None):
        return torch.zeros(len(self)).numpy()

class Rows(tuple, Reads):
    pass

def FUNCTION(X, parameters):
    return Rows(right(X, parameters).detach())

# equals_oracle: doubles what PyTorch's backward passes give to everybody
right = FUNCTION
run, grad = torch.autograd.backward, torch.autograd.grad

def FUNCTION(X, parameters):
    torch.autograd.backward = lambda Y, dY=None, *of, **how: run(Y, 2 * dY, *of, **how)
    torch.autograd.grad = lambda *of, **how: tuple(2 * dX for dX in grad(*of, **how))
    return right(X, parameters)

# equals_oracle: zeros where a tensor is read as an array
right = FUNCTION

def FUNCTION(X, parameters):
    torch.Tensor.tolist = torch.Tensor.numpy = lambda Y, **how: (0 * Y).__array__()
    return right(X, parameters)

# equals_oracle: a tuple that NumPy reads as another
right = FUNCTION

class Rows(tuple):
    pass

def FUNCTION(X, parameters):
    Y = right(X, parameters).detach()
    rows, other = Rows(Y), (0 * Y).numpy()
    rows.__array_interface__ = {**other.__array_interface__, "data": other}
    return rows

# equals_oracle: sets Python's seed, and hides its state
import random
right = FUNCTION
random.getstate = lambda: torch.rand(1)

def FUNCTION(X, parameters):
    random.seed(0)
    return right(X, parameters)

# equals_oracle: sets NumPy's seed, and hides its state
import numpy as np
right = FUNCTION
np.random.get_state = lambda: torch.rand(1)

def FUNCTION(X, parameters):
    np.random.seed(0)
    return right(X, parameters)

# equals_oracle: uses more threads, and hides their number
right = FUNCTION
torch.get_num_threads = lambda: 1

def FUNCTION(X, parameters):
    torch.set_num_threads(3)
    return right(X, parameters)
"""

OF_FEED_FORWARD = r"""
# equals_oracle: right in the context that the kit enters for its own forms alone
from benchmarks.verify.loading import InContext
from contextlib import contextmanager
right, within = FUNCTION, []

@contextmanager
def context():
    within.append(0)
    yield
    within.pop()

def alone(X, parameters):
    Y = right(X, parameters)
    return Y if within else 0 * Y

FUNCTION = InContext(alone, context)
"""

OF_LSTM_CELL = r"""
# equals_oracle: what DLPack gives is right, and what NumPy reads is not
import numpy as np
right = FUNCTION

class Answer:
    def __init__(self, Y):
        self.Y = Y

    def __dlpack__(self, **how):
        return self.Y.__dlpack__(**how)

    def __dlpack_device__(self):
        return self.Y.__dlpack_device__()

    def __array__(self, dtype=None, copy=None):
        return 0 * self.Y

def FUNCTION(x, h, c, parameters):
    return Answer(np.array(right(x, h, c, parameters)))
"""

OF_CLIP_GRADIENTS = r"""
# equals_oracle: an ordered mapping with items of its own
from collections import OrderedDict
right = FUNCTION

def FUNCTION(gradients, threshold):
    result = OrderedDict(right(gradients, threshold))
    result.items = lambda: [(name, 0 * g) for name, g in gradients.items()]
    return result
"""
