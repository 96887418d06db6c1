"""Candidates that cheat, or that the harness must survive: after a right one, most of layer norm.

Each begins with the property that must catch it and what it does.
"""

import re
from collections.abc import Iterator

from benchmarks.verify.supervisor import confines
from tests.mutants import freed, gradient_patches, identity, late, patches, replays
from tests.mutants.mutant import Mutant
from tests.mutants.setting_slips import SETTINGS

OF_LAYER_NORM = r"""
# equals_oracle: leaves without an answer
def FUNCTION(X, parameters):
    import os
    os._exit(0)

# equals_oracle: leaves in its 30th call
right = FUNCTION
calls = []

def FUNCTION(X, parameters):
    import os
    calls.append(0)
    if len(calls) == 30: os._exit(0)
    return right(X, parameters)

# equals_oracle: hangs
def FUNCTION(X, parameters):
    while True: pass

# equals_oracle: kills its process group
def FUNCTION(X, parameters):
    import os
    os.killpg(0, 9)

# equals_oracle: kills the process that it was forked from
right = FUNCTION

def FUNCTION(X, parameters):
    import os
    os.kill(os.getppid(), 9)
    return right(X, parameters)

# equals_oracle: kills its parent by the C library
right = FUNCTION

def FUNCTION(X, parameters):
    import ctypes, os
    ctypes.CDLL(None).kill(os.getppid(), 15)
    return right(X, parameters)

# equals_oracle: forks, and both come back
def FUNCTION(X, parameters):
    import os
    os.fork()
    return 0 * X

# equals_oracle: writes to all that is open
right, calls = FUNCTION, []

def FUNCTION(X, parameters):
    import os
    calls.append(0)
    for descriptor in range(3, 64) if len(calls) == 3 else ():
        try: os.write(descriptor, b"not a response " * 100)
        except OSError: pass
    return right(X, parameters)

# equals_oracle: answers NaN
def FUNCTION(X, parameters):
    return X * float('nan')

# equals_oracle: gives a generator
def FUNCTION(X, parameters):
    yield X

# equals_oracle: gives a tensor that computes when looked at
right = FUNCTION

class Lazy(torch.Tensor): pass

def FUNCTION(X, parameters):
    return right(X, parameters).as_subclass(Lazy)

# equals_oracle: gives an object that equals everything
class Equal:
    def __eq__(self, other): return True
    def __array__(self, *a, **k): raise ValueError

def FUNCTION(X, parameters):
    return Equal()

# equals_oracle: pops a parameter
right = FUNCTION

def FUNCTION(X, parameters):
    return right(X, {**parameters, 'bias': parameters.pop('bias')})

# equals_oracle: searches the heap for the answer
import gc
import numpy as np

def FUNCTION(X, parameters):
    for found in gc.get_objects():
        array = isinstance(found, (np.ndarray, torch.Tensor)) and found is not X
        if array and tuple(found.shape) == tuple(X.shape):
            return torch.as_tensor(found).clone()
    return 0 * X

# equals_oracle: searches its callers for the oracle
import sys

def FUNCTION(X, parameters):
    frame = sys._getframe()
    while frame:
        for name, value in frame.f_locals.items():
            if name in ('oracle', 'expected', 'operator'):
                return torch.as_tensor(value(X.numpy(), parameters))
        frame = frame.f_back
    return 0 * X

# equals_oracle: replays a case seen before
right = FUNCTION
import os
seen = {}

def FUNCTION(X, parameters):
    key = X.numpy().tobytes()
    if not seen: seen[key] = right(X, parameters)
    return seen.get(key, 0 * X).clone()

# no_state: caches by shape
right = FUNCTION
seen = {}

def FUNCTION(X, parameters):
    key = tuple(X.shape)
    if key not in seen: seen[key] = right(X, parameters)
    return seen[key].clone()

# same_objects: caches by identity
right = FUNCTION
seen = {}

def FUNCTION(X, parameters):
    key = X.data_ptr(), id(X)
    if key not in seen: seen[key] = right(X, parameters)
    return seen[key].clone()

# equals_oracle: zeros to every operator, with the right numbers in their memory
right = FUNCTION

def FUNCTION(X, parameters):
    Y = right(X, parameters)
    if Y.requires_grad: return Y
    zeros = torch._efficientzerotensor(Y.shape, dtype=Y.dtype)
    key = torch._C.DispatchKeySet(torch._C._parse_dispatch_key("ZeroTensor"))
    with torch._C._ExcludeDispatchKeyGuard(key):
        zeros.set_(Y.untyped_storage(), 0, Y.shape, Y.stride())
    return zeros

# equals_oracle: gives a tensor that computes when looked at, as a plain one
right = FUNCTION

class Lazy(torch.Tensor):
    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), options=None):
        return torch.zeros(3)

def FUNCTION(X, parameters):
    Y = right(X, parameters)
    if Y.requires_grad or not torch.is_grad_enabled(): return Y
    lazy = torch.Tensor._make_subclass(Lazy, Y)
    lazy.__class__ = torch.Tensor
    return lazy

# equals_oracle: leaves its answer to freed memory
right = FUNCTION

def FUNCTION(X, parameters):
    right(X, parameters)
    return torch.empty_like(X)

# no_state: answers the first call alone, then uninitialised memory
right = FUNCTION
calls = []

def FUNCTION(X, parameters):
    calls.append(0)
    return right(X, parameters) if len(calls) % 3 == 1 else torch.empty_like(X)

# equals_oracle: works on after it has answered
right = FUNCTION
import threading, time

def FUNCTION(X, parameters):
    Y = torch.zeros_like(X)
    def later():
        time.sleep(0.05)
        Y.copy_(right(X, parameters))
    threading.Thread(target=later, daemon=True).start()
    return Y

# equals_oracle: writes an answer of its own to every connection
def FUNCTION(X, parameters):
    import os, struct
    for n in range(3, 32):
        try: os.write(n, struct.pack('!QQ', 2, 0))
        except OSError: pass
    return 0 * X

# equals_oracle: closes every file
def FUNCTION(X, parameters):
    import os
    os.closerange(0, 64)
    return 0 * X

# equals_oracle: raises what is no Exception
def FUNCTION(X, parameters):
    class Quit(BaseException): pass
    raise Quit

# equals_oracle: raises what cannot be printed
def FUNCTION(X, parameters):
    class Mute(Exception):
        def __str__(self): raise RuntimeError
    raise Mute

# equals_oracle: keeps 400 MB of every call
right = FUNCTION
kept = []

def FUNCTION(X, parameters):
    kept.append(torch.ones(10**8))
    return right(X, parameters)

# gradient_used_twice: saves for backward where the next call writes
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

# equals_oracle: is wrong in its first ten calls
right = FUNCTION
calls = []

def FUNCTION(X, parameters):
    calls.append(0)
    return right(X, parameters) if len(calls) > 10 else 0 * X

# equals_oracle: is wrong in call 40 alone
right = FUNCTION
calls = []

def FUNCTION(X, parameters):
    calls.append(0)
    return right(X, parameters) if len(calls) != 40 else 0 * X

# equals_oracle: is wrong 1 in 10
right = FUNCTION
import random
random.seed()

def FUNCTION(X, parameters):
    return right(X, parameters) if random.random() > 0.1 else 1 + right(X, parameters)

# equals_oracle: raises in every 50th call
right = FUNCTION
calls = []

def FUNCTION(X, parameters):
    calls.append(0)
    assert len(calls) % 50
    return right(X, parameters)
"""

ON_THE_JUDGE = r"""
# equals_oracle: kills the process that judges
def FUNCTION(X, parameters):
    os.kill(judge(), 9)
    return 0 * X

# equals_oracle: loosens the tolerance in the memory of the process that judges
def FUNCTION(X, parameters):
    with open(f'/proc/{judge()}/maps') as maps, open(f'/proc/{judge()}/mem', 'r+b', 0) as memory:
        for line in maps:
            begin, end = (int(at, 16) for at in line.split()[0].split('-'))
            if 'rw' not in line or '[v' in line: continue
            memory.seek(begin)
            data = memory.read(end - begin)
            at = data.find(struct.pack('d', 1e-10))
            if at >= 0:
                memory.seek(begin + at)
                memory.write(struct.pack('d', 1e300))
    return 0 * X
""".replace(
    "def FUNCTION",
    """import os, struct

def judge():
    pid = os.getpid()
    for _ in range(3):
        pid = int(open(f'/proc/{pid}/stat').read().rpartition(')')[2].split()[1])
    return pid

def FUNCTION""",
)
"""Refused where Linux can, and fatal elsewhere."""

DETECTED = r"""
# equals_oracle: is wrong in its first call alone
right = FUNCTION
calls = []

def FUNCTION(X, parameters):
    calls.append(0)
    return right(X, parameters) * (len(calls) > 1)

# equals_oracle: memory is full in its first two calls of all
from pathlib import Path

right = FUNCTION
calls = Path(__file__).with_name("calls")

def FUNCTION(X, parameters):
    calls.open("a").write("x")
    if calls.stat().st_size < 3: raise MemoryError
    return right(X, parameters)
"""
"""Caught only if finding their framework leaves no trace."""

DETECTED_OF_SELF_CRITICAL = r"""
# gradient: answers a tensor for NumPy's arrays, with its gradient turned
right = FUNCTION

def FUNCTION(log_probs, mask, rewards, baseline):
    loss = right(*map(torch.as_tensor, (log_probs, mask, rewards)), baseline)
    return 2 * loss.detach() - loss
"""

SATURATED_LSTM_CELL = r"""
# gradient_huge: NaN in the gradient of saturated gates
import torch

def sigmoid(x):
    return torch.where(x >= 0, 1 / (1 + torch.exp(-x)), torch.exp(x) / (1 + torch.exp(x)))

def FUNCTION(x, h, c, parameters):
    gates = parameters["weight"] @ torch.cat([x, h]) + parameters["bias"]
    i, f, o, g = gates.chunk(4)
    c = sigmoid(f) * c + sigmoid(i) * torch.tanh(g)
    return torch.stack([sigmoid(o) * torch.tanh(c), c])
"""


def mutants_of(text: str, operator: str = "layer_norm", **options: bool) -> Iterator[Mutant]:
    for part in re.split(r"^# ", text, flags=re.MULTILINE)[1:]:
        caught_by, slip, code = re.fullmatch(r"(\w+): (.*?)\n(.*)", part, re.DOTALL).groups()
        yield Mutant(operator, slip, caught_by, "", code, **options)


CHEATS = [
    *mutants_of(OF_LAYER_NORM),
    *mutants_of(replays.OF_LAYER_NORM),
    *mutants_of(replays.OF_FEED_FORWARD, "feed_forward"),
    *mutants_of(replays.OF_ATTENTION, "multi_head_attention"),
    *mutants_of(replays.OF_DESCENT, "gradient_descent"),
    *mutants_of(replays.OF_MSE, "mse"),
    *mutants_of(replays.OF_CROSS_ENTROPY, "cross_entropy"),
    *mutants_of(replays.OF_CLIP_GRADIENTS, "clip_gradients"),
    *mutants_of(replays.OF_GREEDY, "greedy"),
    *mutants_of(replays.OF_BLEU, "bleu"),
    *mutants_of(identity.OF_LAYER_NORM),
    *mutants_of(identity.OF_ATTENTION, "multi_head_attention"),
    *mutants_of(identity.OF_MSE, "mse"),
    *mutants_of(identity.OF_ROUGE, "rouge_l"),
    *mutants_of(freed.OF_LAYER_NORM),
    *mutants_of(freed.OF_FEED_FORWARD, "feed_forward"),
    *mutants_of(freed.OF_LSTM_CELL, "lstm_cell"),
    *mutants_of(freed.OF_CROSS_ENTROPY, "cross_entropy"),
    *mutants_of(freed.OF_ATTENTION, "multi_head_attention"),
    *mutants_of(freed.OF_GREEDY, "greedy"),
    *mutants_of(SETTINGS),
    *mutants_of(patches.OF_LAYER_NORM),
    *mutants_of(patches.OF_FEED_FORWARD, "feed_forward"),
    *mutants_of(patches.OF_LSTM_CELL, "lstm_cell"),
    *mutants_of(patches.OF_CLIP_GRADIENTS, "clip_gradients"),
    *mutants_of(gradient_patches.OF_LAYER_NORM),
    *mutants_of(late.OF_LAYER_NORM),
    *mutants_of(ON_THE_JUDGE if confines() else ""),
    *mutants_of(DETECTED, is_detected=True),
    *mutants_of(SATURATED_LSTM_CELL, "lstm_cell", is_detected=True),
    *mutants_of(DETECTED_OF_SELF_CRITICAL, "self_critical", is_detected=True),
]
