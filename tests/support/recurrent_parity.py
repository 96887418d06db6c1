"""Holding recurrent modules to the oracle: parameters by its names, and one sequence through it."""

from functools import partial

import numpy as np

from reference import recurrent as oracle
from reference.primitives import select


def _with_bias(weight, p):
    return {"weight": weight, "bias": p["bias"]} if "bias" in p else {"weight": weight}


def gates_map(p):
    """T of ARNet 2, which acts on [x_t; h_{t-1}]."""
    return _with_bias(np.concatenate([p["weight_x"], p["weight_h"]], 1), p)


def attentive_map(p, input_size):
    """T of ARNet 3, which acts on [x_t; h_{t-1}; z_t]."""
    x, z = np.split(p["weight_x"], [input_size], 1)
    return _with_bias(np.concatenate([x, p["weight_h"], z], 1), p)


def score_map(p):
    """The perceptron of ``additive_score``."""
    W = {"W_s": p["key.weight"], "b": p["key.bias"], "W_h": p["query.weight"]}
    return W | {"w": p["score.weight"][0]}


def printed_map(p, names):
    """W_ix, W_im and so on of the read-only paper, its gates called by ``names``."""
    G = len(names)
    return {
        f"W_{name}{short}": block
        for short, weight in (("x", p["weight_x"]), ("m", p["weight_h"]))
        for name, block in zip(names, np.split(weight, G), strict=True)
    }


def reconstructor_map(p):
    """``lstm.`` and ``fc.`` as the oracle's auto-reconstructor has them."""
    T = {f"lstm.{name}": value for name, value in gates_map(select(p, "lstm.")).items()}
    return T | {f"fc.{name}": value for name, value in select(p, "fc.").items()}


def cell(lstm, p, read):
    """The oracle's cell that ``lstm`` is, with what it reads at this step."""
    if lstm.squash:
        return partial(oracle.lstm, T=gates_map(p))
    W = printed_map(p, "ifoc" if read is None else "iforc")
    return lambda x, state: oracle.memory_block(x, state, W, read)


def through_the_oracle(
    lstm, p, xs, state, reads=None, z_c=None, z_h=None, factors=None, updates=None
):
    """The states along one sequence (T, d_x), with the masks (T, d) of its steps if there are."""
    states, scale = [], 1 - lstm.recurrent_dropout
    for t, x in enumerate(xs):
        step = cell(lstm, p, None if reads is None else reads[t])
        if factors is not None:
            step = oracle.recurrent_dropout(step, factors[t] * scale, lstm.recurrent_dropout)
        if updates is not None:
            given = {"T": gates_map(p), "keep": updates[t] * scale, "p": lstm.recurrent_dropout}
            step = partial(oracle.update_dropout, **given)
        kept = (0.0 if z is None else z[t] for z in (z_c, z_h))
        state = oracle.zoneout(state, step(x, state), *kept)
        states.append(state)
    return states
