"""Candidates with wrong gradients that replace functions, or hook: after a right layer norm.

Each begins with the property that must catch it and what it does, as in ``cheats``.
"""

OF_LAYER_NORM = r"""
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

# gradient_used_twice: another in a second backward pass, and replaces how it is subtracted
right, minus = FUNCTION, torch.library.Library("aten", "IMPL")
minus.impl("sub.Tensor", lambda x, y, *, alpha=1:
           y.clone() if alpha == 2 else torch.add(x, y, alpha=-alpha), "CPU")

class Again(torch.autograd.Function):
    @staticmethod
    def forward(ctx, Y):
        ctx.factor = 1
        return Y.clone()

    @staticmethod
    def backward(ctx, dY):
        ctx.factor, factor = 7, ctx.factor
        return factor * dY

def FUNCTION(X, parameters):
    return Again.apply(right(X, parameters))

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

# gradient: by what is saved of an input with some of the same entries
seen = {}

def some(array):
    return array.shape, array.dtype, *array.flatten()[:: max(1, array.numel() // 16)].tolist()

class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X, weight, bias):
        ctx.key = some(X), some(weight)
        now = torch.native_layer_norm(X, X.shape[-1:], weight, bias, 1e-5)
        seen.setdefault(ctx.key, (X.clone(), weight.clone(), *now[1:]))
        return now[0]

    @staticmethod
    def backward(ctx, dY):
        X, weight, mean, inverse = seen[ctx.key]
        given = dY, X, X.shape[-1:], mean, inverse, weight, weight, [True] * 3
        return torch.ops.aten.native_layer_norm_backward(*given)

def FUNCTION(X, parameters):
    return Norm.apply(X, parameters["weight"], parameters["bias"])
"""
