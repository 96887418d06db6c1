"""Candidates that replace functions of the kit, NumPy, PyTorch or Python: after a right layer norm.

Each begins with the property that must catch it and what it does, as in ``cheats``.
"""

OF_LAYER_NORM = r"""
# equals_oracle: patches NumPy's comparisons
import numpy as np

def FUNCTION(X, parameters):
    np.abs = np.max = np.allclose = np.array_equal = lambda *a, **k: 0.0
    return 0 * X

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

# gradient: gives a gradient of its own making
right, backward, kept = FUNCTION, torch.autograd.backward, []
torch.autograd.backward = lambda tensors, *a, **k: backward(kept, *a, **k)

def FUNCTION(X, parameters):
    kept[:] = [right(X, parameters)]
    return (X.sum() * 0 + kept[0].detach()) if X.requires_grad else kept[0]

# gradient: gives a gradient of its own making where the backward pass enters the engine
import torch.autograd.graph as graph
right, backward, kept = FUNCTION, graph._engine_run_backward, []
torch.autograd._engine_run_backward = graph._engine_run_backward = (
    lambda tensors, *a, **k: backward(tuple(kept), *a, **k))

def FUNCTION(X, parameters):
    kept[:] = [right(X, parameters)]
    return (X.sum() * 0 + kept[0].detach()) if X.requires_grad else kept[0]

# gradient: gives a gradient of its own making when it is read
right = FUNCTION

def grad(X):
    X = X.detach().requires_grad_()
    parameters = {name: array.detach() for name, array in Last.parameters.items()}
    Y = right(X, parameters)
    weights = torch.cos(1 + torch.arange(Y.numel(), dtype=Y.dtype)).reshape(Y.shape)
    return torch.autograd.grad((weights * Y).sum(), X)[0]

class Last: pass

torch.Tensor.grad = property(grad, lambda X, value: None)

def FUNCTION(X, parameters):
    Last.parameters = parameters
    return right(X, parameters).detach() + 0 * X

# gradient: doubled, and a hook on its argument halves it
right = FUNCTION

def FUNCTION(X, parameters):
    if X.requires_grad and not X._backward_hooks:
        X.register_hook(lambda dX: dX / 2)
    Y = right(X, parameters)
    return 2 * Y - Y.detach() if X.requires_grad else Y

# gradient: doubled, and a hook after it is accumulated halves it
right = FUNCTION

def halved(X):
    X.grad.div_(2)

def FUNCTION(X, parameters):
    if X.requires_grad and X.is_leaf and not X._post_accumulate_grad_hooks:
        X.register_post_accumulate_grad_hook(halved)
    Y = right(X, parameters)
    return 2 * Y - Y.detach() if X.requires_grad else Y

# gradient_used_twice: written to its argument, beside a gradient of zeros
right = FUNCTION

class Written(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X):
        ctx.leaf = X
        return X.clone()

    @staticmethod
    def backward(ctx, dX):
        ctx.leaf.grad = dX if ctx.leaf.grad is None else ctx.leaf.grad + dX
        return 0 * dX

def FUNCTION(X, parameters):
    return right(Written.apply(X) if X.requires_grad and X.is_leaf else X, parameters)

# gradient_used_twice: doubled, and a hook where it is accumulated halves it
right, hooked = FUNCTION, []

class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X, node):
        ctx.node = node
        return X.clone()

    @staticmethod
    def backward(ctx, dX):
        try:
            accumulates = torch._C._will_engine_execute_node(ctx.node)
        except RuntimeError:  # of torch.autograd.grad
            accumulates = False
        return dX * (1 + accumulates), None

def FUNCTION(X, parameters):
    if X.requires_grad and X.is_leaf and torch.is_grad_enabled():
        node = X.view_as(X).grad_fn.next_functions[0][0]
        if all(node is not one for one in hooked):
            node.register_prehook(lambda found: tuple(x / 2 for x in found))
            hooked.append(node)
        X = Doubled.apply(X, node)
    return right(X, parameters)

# gradient_used_twice: releases what it saved, and halves a gradient before
right = FUNCTION

class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X):
        ctx.leaf, ctx.is_used = X, False
        return X.clone()

    @staticmethod
    def backward(ctx, dX):
        if ctx.is_used:
            raise RuntimeError("what it saved is released")
        ctx.is_used = True
        if ctx.leaf.grad is not None:
            ctx.leaf.grad.div_(2)
        return dX

def FUNCTION(X, parameters):
    return right(Once.apply(X) if X.requires_grad and X.is_leaf else X, parameters)

# equals_oracle: leaves hooks of saved tensors on
right = FUNCTION

def FUNCTION(X, parameters):
    Y = right(X, parameters)
    if not hooks:
        hooks.append(torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: 0 * x))
        hooks[0].__enter__()
    return Y

hooks = []

# gradient_used_twice: zeros where there is a gradient before
right = FUNCTION

def FUNCTION(X, parameters):
    return 0 * X if X.is_leaf and X.grad is not None else right(X, parameters)

# gradient_scaled: none of upstream gradients up to 500
right = FUNCTION

class Small(torch.autograd.Function):
    @staticmethod
    def forward(ctx, Y):
        return Y.clone()

    @staticmethod
    def backward(ctx, dY):
        return 0 * dY if 3 < dY.abs().max() < 500 else dY

def FUNCTION(X, parameters):
    return Small.apply(right(X, parameters))

# gradient_of_sum: none of upstream gradients that are all positive, and differ
right = FUNCTION

class Positive(torch.autograd.Function):
    @staticmethod
    def forward(ctx, Y):
        return Y.clone()

    @staticmethod
    def backward(ctx, dY):
        return 0 * dY if dY.numel() > 2 and 0 < dY.min() < dY.max() else dY

def FUNCTION(X, parameters):
    return Positive.apply(right(X, parameters))

# gradient_of_some: written to arguments that require none
right = FUNCTION

class Full(torch.autograd.Function):
    @staticmethod
    def forward(ctx, Y, *arrays):
        ctx.arrays = arrays
        return Y.clone()

    @staticmethod
    def backward(ctx, dY):
        for x in ctx.arrays:
            if not x.requires_grad:
                x.grad = torch.full_like(x, 7)
        return dY, *[None] * len(ctx.arrays)

def FUNCTION(X, parameters):
    return Full.apply(right(X, parameters), X, *parameters.values())

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

# gradient: half, and whole when it is asked whether it has one
right, has_one, pending = FUNCTION, torch.Tensor.requires_grad, []

def requires_grad(Y):
    if pending and pending[0][0] is Y:
        _, *of = pending.pop()
        with torch.enable_grad():
            Y.copy_(right(*of))
    return has_one.__get__(Y)

torch.Tensor.requires_grad = property(requires_grad, has_one.__set__)

def FUNCTION(X, parameters):
    Y = right(X, parameters)
    if has_one.__get__(Y):
        Y = Y / 2 + Y.detach() / 2
        pending[:] = [(Y, X, parameters)]
    return Y

# gradient: half, and whole when an upstream gradient is made
right, to, pending = FUNCTION, torch.Tensor.to, []

def late(x, *of, **how):
    while pending:
        Y, *given = pending.pop()
        with torch.enable_grad():
            Y.copy_(right(*given))
    return to(x, *of, **how)

torch.Tensor.to = late

def FUNCTION(X, parameters):
    Y = right(X, parameters)
    if Y.requires_grad:
        Y = Y / 2 + Y.detach() / 2
        pending[:] = [(Y, X, parameters)]
    return Y

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
