"""Candidates that keep what an array held, or a result, by identity or shape, in one state alone.

Each begins with the property that must catch it and what it does.
"""

KEPT = """
right, kept = FUNCTION, {}

def first(w):
    one, now = kept.setdefault(id(w), (w, w.detach().clone()))
    return now if now.shape == w.shape and now.dtype == w.dtype else w
"""

OF_LAYER_NORM = r"""
# same_objects: replays by shape where parameters are beside an input without gradient
right, seen = FUNCTION, {}

def FUNCTION(X, parameters):
    is_first = isinstance(parameters["weight"], torch.nn.Parameter) and not X.requires_grad
    if not is_first or torch.is_grad_enabled(): return right(X, parameters)
    key = X.shape, X.dtype
    if key not in seen: seen[key] = right(X, parameters).clone()
    return seen[key].clone()

# same_objects: replays by shape what was made in inference mode
right, seen = FUNCTION, {}

def FUNCTION(X, parameters):
    if not X.is_inference(): return right(X, parameters)
    key = X.shape, X.dtype
    if key not in seen: seen[key] = right(X, parameters).clone()
    return seen[key].clone()

# same_objects: keeps the weights by identity where the input is a view
{KEPT}
def FUNCTION(X, parameters):
    weight = parameters["weight"]
    if not X.is_contiguous(): weight = weight + (first(weight) - weight.detach())
    return right(X, {**parameters, "weight": weight})

# same_objects: keeps the weights by a mapping's identity and their version
right, seen = FUNCTION, {}

def FUNCTION(X, parameters):
    weight = parameters["weight"]
    if not (weight.is_inference() or weight.requires_grad):
        of, version, now = seen.get(id(parameters), (None, 0, weight))
        is_known = of is parameters and version == weight._version and now.shape == weight.shape
        if not is_known: now = weight.clone()
        seen[id(parameters)] = parameters, weight._version, now
        if now.dtype == weight.dtype: weight = now
    return right(X, {**parameters, "weight": weight})

# gradient_after_other: keeps the weights by identity where the input is a result
{KEPT}
def FUNCTION(X, parameters):
    weight = parameters["weight"]
    if X.grad_fn is not None: weight = weight + (first(weight) - weight.detach())
    return right(X, {**parameters, "weight": weight})

# gradient_after_other: keeps the weights by identity where they are frozen
{KEPT}
def FUNCTION(X, parameters):
    weight = parameters["weight"]
    if X.requires_grad and not weight.requires_grad: weight = first(weight)
    return right(X, {**parameters, "weight": weight})

# gradient_after_other: keeps a parameter's numbers for its backward pass by identity
{KEPT}
class Times(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X, weight, old):
        ctx.save_for_backward(X, old)
        return X * weight

    @staticmethod
    def backward(ctx, dY):
        X, weight = ctx.saved_tensors
        return dY * weight, (dY * X).sum_to_size(weight.shape), None

def FUNCTION(X, parameters):
    weight = parameters["weight"]
    if not isinstance(weight, torch.nn.Parameter): return right(X, parameters)
    ones, bias = torch.ones_like(weight), parameters["bias"]
    return Times.apply(right(X, {"weight": ones, "bias": 0 * ones}), weight, first(weight)) + bias

# inference: keeps the weights of parameters by identity
{KEPT}
def FUNCTION(X, parameters):
    weight = parameters["weight"]
    if isinstance(weight, torch.nn.Parameter):
        weight = weight * 0 + first(weight)
    return right(X, {**parameters, "weight": weight})

# bfloat16: keeps the weights of 16 bits by identity
{KEPT}
def FUNCTION(X, parameters):
    weight = parameters["weight"]
    if weight.element_size() == 2:
        weight = weight * 0 + first(weight)
    return right(X, {**parameters, "weight": weight})

# inference: keeps the weights of parameters in inference mode by identity
{KEPT}
def FUNCTION(X, parameters):
    weight = parameters["weight"]
    if torch.is_inference_mode_enabled() and weight.requires_grad:
        weight = weight * 0 + first(weight)
    return right(X, {**parameters, "weight": weight})

# bfloat16: keeps the weights of parameters of 16 bits by identity
{KEPT}
def FUNCTION(X, parameters):
    weight = parameters["weight"]
    if weight.element_size() == 2 and weight.requires_grad:
        weight = weight * 0 + first(weight)
    return right(X, {**parameters, "weight": weight})

# bfloat16: keeps the weights of 16 bits without gradients by identity
{KEPT}
def FUNCTION(X, parameters):
    weight = parameters["weight"]
    if weight.element_size() == 2 and not torch.is_grad_enabled():
        weight = weight * 0 + first(weight)
    return right(X, {**parameters, "weight": weight})
""".replace("{KEPT}", KEPT)

OF_ATTENTION = r"""
# same_array: keeps the weights by identity where queries and keys are one array
{KEPT}
def FUNCTION(X, Y, parameters, num_heads, causal, lengths):
    weight = parameters["value.weight"]
    if torch.equal(X, Y): weight = weight + (first(weight) - weight.detach())
    return right(X, Y, {**parameters, "value.weight": weight}, num_heads, causal, lengths)

# same_objects: replays by identity and version, whatever the options are
right, seen = FUNCTION, {}

def FUNCTION(X, Y, parameters, num_heads, causal, lengths):
    given = X, Y, *parameters.values()
    if any(x.requires_grad or x.is_inference() for x in given) or len(X) > 1:
        return right(X, Y, parameters, num_heads, causal, lengths)
    key = tuple((id(x), x._version) for x in given)
    if key not in seen:
        seen[key] = given, right(X, Y, parameters, num_heads, causal, lengths).clone()
    return seen[key][1].clone()
""".replace("{KEPT}", KEPT)

OF_MSE = r"""
# same_objects: keeps results by identity of arrays that own their memory
right, seen = FUNCTION, {}

def FUNCTION(y_hat, y):
    if not y_hat.flags.owndata: return right(y_hat, y)
    one, result = seen.setdefault(id(y_hat), (y_hat, right(y_hat, y)))
    return result
"""

OF_ROUGE = r"""
# same_objects: keeps captions by identity of their lists
right, seen = FUNCTION, {}

def kept(words):
    one, now = seen.setdefault(id(words), (words, [*words]))
    return now

def FUNCTION(candidates, references):
    return right([*map(kept, candidates)], [[*map(kept, of)] for of in references])
"""
