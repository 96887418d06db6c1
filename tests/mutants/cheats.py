"""Candidates that cheat, or that the harness must survive: of layer norm, after a right one."""

from tests.mutants.mutant import Mutant

Cheat = tuple[str, str, str]

OF_LAYER_NORM: list[Cheat] = [
    (
        "leaves without an answer",
        "equals_oracle",
        """
def FUNCTION(X, parameters):
    import os
    os._exit(0)
""",
    ),
    (
        "leaves in its 30th call",
        "equals_oracle",
        """
right = FUNCTION
calls = []


def FUNCTION(X, parameters):
    import os
    calls.append(0)
    if len(calls) == 30: os._exit(0)
    return right(X, parameters)
""",
    ),
    (
        "hangs",
        "equals_oracle",
        """
def FUNCTION(X, parameters):
    while True: pass
""",
    ),
    (
        "kills its process group",
        "equals_oracle",
        """
def FUNCTION(X, parameters):
    import os
    os.killpg(0, 9)
""",
    ),
    (
        "kills the process that it was forked from",
        "equals_oracle",
        """
def FUNCTION(X, parameters):
    import os
    os.kill(os.getppid(), 9)
    return 0 * X
""",
    ),
    (
        "forks, and both come back",
        "equals_oracle",
        """
def FUNCTION(X, parameters):
    import os
    os.fork()
    return 0 * X
""",
    ),
    (
        "answers NaN",
        "equals_oracle",
        """
def FUNCTION(X, parameters):
    return X * float('nan')
""",
    ),
    (
        "gives a generator",
        "equals_oracle",
        """
def FUNCTION(X, parameters):
    yield X
""",
    ),
    (
        "gives a tensor that computes when looked at",
        "equals_oracle",
        """
right = FUNCTION


class Lazy(torch.Tensor): pass


def FUNCTION(X, parameters):
    return right(X, parameters).as_subclass(Lazy)
""",
    ),
    (
        "gives an object that equals everything",
        "equals_oracle",
        """
class Equal:
    def __eq__(self, other): return True
    def __array__(self, *a, **k): raise ValueError


def FUNCTION(X, parameters):
    return Equal()
""",
    ),
    (
        "patches NumPy's comparisons",
        "equals_oracle",
        """
import numpy as np


def FUNCTION(X, parameters):
    np.abs = np.max = np.allclose = np.array_equal = lambda *a, **k: 0.0
    return 0 * X
""",
    ),
    (
        "patches the kit's tolerances",
        "equals_oracle",
        """
def FUNCTION(X, parameters):
    import benchmarks.verify.tolerances as t
    t.error = t._assert_within = lambda *a, **k: 0.0
    return 0 * X
""",
    ),
    (
        "patches the kit's reading of results",
        "equals_oracle",
        """
def FUNCTION(X, parameters):
    import benchmarks.verify.wire as w, benchmarks.verify.candidate as c
    c._same = lambda *a: True
    return 0 * X
""",
    ),
    (
        "hides what it changes in place",
        "equals_oracle",
        """
right = FUNCTION


def FUNCTION(X, parameters):
    import benchmarks.verify.candidate as c
    c._same = lambda *a: True
    Y = right(X, parameters)
    X.add_(1)
    return Y
""",
    ),
    (
        "searches the heap for the answer",
        "equals_oracle",
        """
import gc
import numpy as np


def FUNCTION(X, parameters):
    for found in gc.get_objects():
        array = isinstance(found, (np.ndarray, torch.Tensor)) and found is not X
        if array and tuple(found.shape) == tuple(X.shape):
            return torch.as_tensor(found).clone()
    return 0 * X
""",
    ),
    (
        "searches its callers for the oracle",
        "equals_oracle",
        """
import sys


def FUNCTION(X, parameters):
    frame = sys._getframe()
    while frame:
        for name, value in frame.f_locals.items():
            if name in ('oracle', 'expected', 'operator'):
                return torch.as_tensor(value(X.numpy(), parameters))
        frame = frame.f_back
    return 0 * X
""",
    ),
    (
        "replays a case seen before",
        "equals_oracle",
        """
right = FUNCTION
import os
seen = {}


def FUNCTION(X, parameters):
    key = X.numpy().tobytes()
    if not seen: seen[key] = right(X, parameters)
    return seen.get(key, 0 * X).clone()
""",
    ),
    (
        "caches by shape",
        "no_state",
        """
right = FUNCTION
seen = {}


def FUNCTION(X, parameters):
    key = tuple(X.shape)
    if key not in seen: seen[key] = right(X, parameters)
    return seen[key].clone()
""",
    ),
    (
        "caches by identity",
        "same_objects",
        """
right = FUNCTION
seen = {}


def FUNCTION(X, parameters):
    key = X.data_ptr(), id(X)
    if key not in seen: seen[key] = right(X, parameters)
    return seen[key].clone()
""",
    ),
    (
        "leaves its answer to freed memory",
        "equals_oracle",
        """
right = FUNCTION


def FUNCTION(X, parameters):
    right(X, parameters)
    return torch.empty_like(X)
""",
    ),
    (
        "answers the first call alone, then uninitialised memory",
        "no_state",
        """
right = FUNCTION
calls = []


def FUNCTION(X, parameters):
    calls.append(0)
    return right(X, parameters) if len(calls) % 3 == 1 else torch.empty_like(X)
""",
    ),
    (
        "works on after it has answered",
        "equals_oracle",
        """
right = FUNCTION
import threading, time


def FUNCTION(X, parameters):
    Y = torch.zeros_like(X)
    def later():
        time.sleep(0.05)
        Y.copy_(right(X, parameters))
    threading.Thread(target=later, daemon=True).start()
    return Y
""",
    ),
    (
        "writes an answer of its own to every connection",
        "equals_oracle",
        """
def FUNCTION(X, parameters):
    import os, struct
    for n in range(3, 32):
        try: os.write(n, struct.pack('!QQ', 2, 0))
        except OSError: pass
    return 0 * X
""",
    ),
    (
        "closes every file",
        "equals_oracle",
        """
def FUNCTION(X, parameters):
    import os
    os.closerange(0, 64)
    return 0 * X
""",
    ),
    (
        "raises what is no Exception",
        "equals_oracle",
        """
def FUNCTION(X, parameters):
    class Quit(BaseException): pass
    raise Quit
""",
    ),
    (
        "raises what cannot be printed",
        "equals_oracle",
        """
def FUNCTION(X, parameters):
    class Mute(Exception):
        def __str__(self): raise RuntimeError
    raise Mute
""",
    ),
    (
        "sets the default dtype",
        "equals_oracle",
        """
right = FUNCTION


def FUNCTION(X, parameters):
    torch.set_default_dtype(torch.float64 if len(X) % 2 else torch.float32)
    return right(X, parameters)
""",
    ),
    (
        "turns gradients off",
        "equals_oracle",
        """
right = FUNCTION


def FUNCTION(X, parameters):
    torch.set_grad_enabled(False)
    return right(X, parameters)
""",
    ),
    (
        "keeps 400 MB of every call",
        "equals_oracle",
        """
right = FUNCTION
kept = []


def FUNCTION(X, parameters):
    kept.append(torch.ones(10**8))
    return right(X, parameters)
""",
    ),
    (
        "gives a gradient of its own making",
        "gradient",
        """
right = FUNCTION
torch.Tensor.backward = lambda self, *a, **k: None


def FUNCTION(X, parameters):
    return right(X, parameters)
""",
    ),
    (
        "saves for backward where the next call writes",
        "gradient_used_twice",
        """
right = FUNCTION


class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx, Y):
        Same.factor = 1
        return Y.clone()
    @staticmethod
    def backward(ctx, g):
        factor, Same.factor = Same.factor, 0
        return g * factor


def FUNCTION(X, parameters):
    return Same.apply(right(X, parameters))
""",
    ),
    (
        "is wrong in its first ten calls",
        "equals_oracle",
        """
right = FUNCTION
calls = []


def FUNCTION(X, parameters):
    calls.append(0)
    return right(X, parameters) if len(calls) > 10 else 0 * X
""",
    ),
    (
        "is wrong in call 40 alone",
        "equals_oracle",
        """
right = FUNCTION
calls = []


def FUNCTION(X, parameters):
    calls.append(0)
    return right(X, parameters) if len(calls) != 40 else 0 * X
""",
    ),
    (
        "is wrong 1 in 10",
        "equals_oracle",
        """
right = FUNCTION
import random
random.seed()


def FUNCTION(X, parameters):
    return right(X, parameters) if random.random() > 0.1 else 1 + right(X, parameters)
""",
    ),
    (
        "raises in every 50th call",
        "equals_oracle",
        """
right = FUNCTION
calls = []


def FUNCTION(X, parameters):
    calls.append(0)
    assert len(calls) % 50
    return right(X, parameters)
""",
    ),
]

CHEATS = [Mutant("layer_norm", slip, by, "", code) for slip, by, code in OF_LAYER_NORM]
