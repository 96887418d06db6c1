"""Random parameters of the oracle's networks, small ones."""

import numpy as np

from reference.recurrent import State

Parameters = dict[str, np.ndarray]


def prefixed(prefix, parameters):
    return {f"{prefix}.{name}": value for name, value in parameters.items()}


def linear_map(rng, d_in, d_out):
    return {"weight": rng.standard_normal((d_out, d_in)), "bias": rng.standard_normal(d_out)}


def lstm_map(rng, inputs, d, bias=True):
    """The T of an LSTM of d channels; ``inputs`` are all that stands beside h."""
    T = linear_map(rng, inputs + d, 4 * d)
    return T if bias else {"weight": T["weight"]}


def state(rng, d):
    return State(rng.standard_normal(d), rng.standard_normal(d))


def read_only_map(rng, N):
    return {f"W_{gate}{source}": rng.standard_normal((N, N)) for gate in "iforc" for source in "xm"}


def captioner_map(rng, N, V, d_feature):
    """A read-only captioner's parameters."""
    return {
        "W_i": rng.standard_normal((d_feature, N)),
        "b_i": rng.standard_normal(N),
        "W_e": rng.standard_normal((V, N)),
        "W_pm": rng.standard_normal((V, N)),
        **read_only_map(rng, N),
    }


def decoder_inputs(self_attention, d_e, d_c, d):
    """The size of what S's LSTM reads beside h, in eqs. 1, 5, 6 and 7."""
    sizes = {"none": d_e + d_c, "output": d_e + d_c, "hidden": d_e + d_c + d}
    return sizes.get(self_attention, 2 * d_e + d_c + d)


def decoder_map(rng, self_attention, d_e, d_c, d):
    """The parameters of ``middle_out.decoder_step``."""
    inputs = decoder_inputs(self_attention, d_e, d_c, d)
    return {
        **prefixed("lstm", lstm_map(rng, inputs, d)),
        "W_a": rng.standard_normal((d, d_c)),
        "W_d": rng.standard_normal((d, d_e)),
        "W_h": rng.standard_normal((d, d)),
    }


def encoder_map(rng, d_x, d):
    """A bidirectional encoder with d channels in all, an even number."""
    return {
        **prefixed("encoder.forward", lstm_map(rng, d_x, d // 2)),
        **prefixed("encoder.backward", lstm_map(rng, d_x, d // 2)),
    }
