"""Candidates that change what other code depends on: seeds and other global settings.

Each comes after a right layer norm, see ``cheats``.
"""

SETTINGS = r"""
# equals_oracle: sets the default dtype
right = FUNCTION

def FUNCTION(X, parameters):
    torch.set_default_dtype(torch.float64 if len(X) % 2 else torch.float32)
    return right(X, parameters)

# equals_oracle: sets the seed
right = FUNCTION

def FUNCTION(X, parameters):
    torch.manual_seed(0)
    return right(X, parameters)

# equals_oracle: sets the precision of products and hides it
right = FUNCTION

def FUNCTION(X, parameters):
    import benchmarks.verify.settings as s
    s.settings_reader = lambda: (dict, {})
    torch.set_float32_matmul_precision('medium')
    torch.get_float32_matmul_precision = lambda: 'highest'
    return right(X, parameters)

# equals_oracle: flushes subnormal numbers
right = FUNCTION

def FUNCTION(X, parameters):
    torch.set_flush_denormal(True)
    return right(X, parameters)

# equals_oracle: looks for anomalies
right = FUNCTION

def FUNCTION(X, parameters):
    torch.autograd.set_detect_anomaly(True)
    return right(X, parameters)

# equals_oracle: makes errors of NumPy's warnings
right = FUNCTION
import numpy as np

def FUNCTION(X, parameters):
    np.seterr(all='raise')
    return right(X, parameters)

# equals_oracle: ignores NumPy's errors
right = FUNCTION
import numpy as np

def FUNCTION(X, parameters):
    np.seterr(all='ignore')
    return right(X, parameters)

# equals_oracle: sets one thread
right = FUNCTION

def FUNCTION(X, parameters):
    torch.set_num_threads(1)
    return right(X, parameters)

# gradient: seeds where there are gradients
right = FUNCTION

def FUNCTION(X, parameters):
    if X.requires_grad:
        torch.manual_seed(0)
    return right(X, parameters)

# gradient_of_some: seeds in the backward pass
right = FUNCTION
import numpy as np

def FUNCTION(X, parameters):
    Y = right(X, parameters)
    if Y.requires_grad:
        Y.register_hook(lambda g: np.random.seed(g.shape[0]))
    return Y

# equals_oracle: seeds in the backward pass, each time otherwise
right = FUNCTION
import numpy as np
calls = []

def FUNCTION(X, parameters):
    Y = right(X, parameters)
    if Y.requires_grad:
        Y.register_hook(lambda g: np.random.seed(len(calls)) or calls.append(0))
    return Y

# equals_oracle: closes standard output
right = FUNCTION
import sys

def FUNCTION(X, parameters):
    sys.stdout.close()
    return right(X, parameters)

# equals_oracle: has its messages go nowhere
right = FUNCTION
import os

def FUNCTION(X, parameters):
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return right(X, parameters)

# equals_oracle: turns warnings of loggers off
right = FUNCTION
import logging

def FUNCTION(X, parameters):
    logging.disable(logging.WARNING)
    return right(X, parameters)

# gradient: sets one thread in the backward pass
right = FUNCTION

def FUNCTION(X, parameters):
    Y = right(X, parameters)
    if Y.requires_grad:
        Y.register_hook(lambda g: torch.set_num_threads(1))
    return Y

# inference: turns gradients on
right = FUNCTION

def FUNCTION(X, parameters):
    torch.set_grad_enabled(True)
    return right(X, parameters)

# equals_oracle: sets an environment variable anew
right = FUNCTION
import os

def FUNCTION(X, parameters):
    os.environ['PATH'] += ':/'
    return right(X, parameters)

# equals_oracle: sets NumPy's seed
right = FUNCTION
import numpy as np

def FUNCTION(X, parameters):
    np.random.seed(0)
    return right(X, parameters)

# equals_oracle: seeds NumPy in a process's first call
right = FUNCTION
import numpy as np
calls = []

def FUNCTION(X, parameters):
    if not calls:
        np.random.seed(0)
    calls.append(0)
    return right(X, parameters)

# equals_oracle: seeds Python in every eighth call
right = FUNCTION
import random
calls = []

def FUNCTION(X, parameters):
    calls.append(0)
    if len(calls) % 8 == 0:
        random.seed(0)
    return right(X, parameters)

# equals_oracle: takes its parameters in the order of a set
right = FUNCTION

def FUNCTION(X, parameters):
    one, other = {"weight", "bias"}
    return right(X, {"weight": parameters[one], "bias": parameters[other]})

# gradient: has a wrong gradient in a process's first backward pass
right = FUNCTION
calls = []

def hook(gradient):
    calls.append(0)
    return 1.5 * gradient if len(calls) == 1 else gradient

def FUNCTION(X, parameters):
    X = 1 * X
    if X.requires_grad:
        X.register_hook(hook)
    return right(X, parameters)

# equals_oracle: turns a library of PyTorch's off
right = FUNCTION

def FUNCTION(X, parameters):
    torch.backends.mkldnn.enabled = False
    return right(X, parameters)

# equals_oracle: sets how NumPy prints
right = FUNCTION
import numpy as np

def FUNCTION(X, parameters):
    np.set_printoptions(precision=4)
    return right(X, parameters)

# equals_oracle: has messages of level debug logged
right = FUNCTION
import logging

def FUNCTION(X, parameters):
    logging.basicConfig(level=logging.DEBUG)
    return right(X, parameters)

# equals_oracle: sets Python's seed
right = FUNCTION
import random

def FUNCTION(X, parameters):
    random.seed(0)
    return right(X, parameters)

# equals_oracle: makes errors of Python's warnings
right = FUNCTION
import warnings

def FUNCTION(X, parameters):
    warnings.simplefilter('error')
    return right(X, parameters)

# equals_oracle: raises the recursion limit
right = FUNCTION
import sys

def FUNCTION(X, parameters):
    sys.setrecursionlimit(50000)
    return right(X, parameters)

# equals_oracle: goes to another folder
right = FUNCTION
import os

def FUNCTION(X, parameters):
    os.chdir('/')
    return right(X, parameters)

# equals_oracle: turns gradients off
right = FUNCTION

def FUNCTION(X, parameters):
    torch.set_grad_enabled(False)
    return right(X, parameters)

# equals_oracle: sets seeds, and replaces how they are pickled
import copyreg, os, random
import numpy as np
right = FUNCTION
copyreg.pickle(np.ndarray, lambda array: (bytes, (os.urandom(16),)))
copyreg.dispatch_table[tuple] = lambda state: (bytes, (os.urandom(16),))

def FUNCTION(X, parameters):
    np.random.seed(0)
    return right(X, parameters)

# equals_oracle: leaves hooks of saved tensors on, and hides them
right, hooks = FUNCTION, []
torch._C._autograd._top_saved_tensors_default_hooks = lambda *_: None

def FUNCTION(X, parameters):
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
        Y = right(X, parameters)
    if not hooks:
        hooks.append(torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: 0 * x))
        hooks[0].__enter__()
    return Y

# equals_oracle: turns a switch of PyTorch's off, and hides it
right = FUNCTION
torch._C._get_mkldnn_enabled = lambda: True

def FUNCTION(X, parameters):
    torch._C._set_mkldnn_enabled(False)
    return right(X, parameters)

# equals_oracle: traces calls, and hides it
import sys
right, sys.gettrace = FUNCTION, lambda: None

def FUNCTION(X, parameters):
    sys.settrace(lambda *_: None)
    return right(X, parameters)

# equals_oracle: settings that are equal to all others
import logging, os, signal
right = FUNCTION

class Equal(bytes):
    __eq__ = lambda self, other: True
    __ne__ = lambda self, other: False
    __hash__ = lambda self: 0
    __call__ = lambda self, *_: None

def FUNCTION(X, parameters):
    os.environ._data[b"HOME"] = Equal(b"/nowhere")
    signal.signal(signal.SIGINT, Equal())
    return right(X, parameters)

# equals_oracle: standard output that is equal to all others
import sys
right = FUNCTION

class Mute:
    closed = False
    __eq__ = lambda self, other: True
    __hash__ = lambda self: 0
    write = flush = lambda self, *_: None

def FUNCTION(X, parameters):
    sys.stdout = Mute()
    return right(X, parameters)
"""
