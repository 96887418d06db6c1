"""What is built on the LSTM: both directions, and attention at every step."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.verify import strategies
from benchmarks.verify.tolerances import assert_close
from reference import attention as oracle_attention
from reference import recurrent as oracle
from tests.support.covers import covers
from tests.support.parity import flat, gradients, load, numpy, tensor
from tests.support.recurrent_parity import attentive_map, gates_map, score_map
from torch_impl.models import attentive_nic
from torch_impl.recurrent import LSTM, AttentiveLSTM, BidirectionalLSTM, State


@given(strategies.generators(), st.booleans())
def test_both_directions_are_the_oracle_s(generator, ragged):
    layer = BidirectionalLSTM(3, 2)
    parameters = load(layer, generator)
    lengths = [4, 1, 3] if ragged else [4, 4, 4]
    x = generator.standard_normal((3, 4, 3))
    hs, last = layer(tensor(x), lengths if ragged else None)
    p = {
        f"{mine}{name}": value
        for mine, theirs in (("forward.", "forwards."), ("backward.", "backwards."))
        for name, value in gates_map(
            {n.removeprefix(theirs): v for n, v in parameters.items() if n.startswith(theirs)}
        ).items()
    }
    for b, length in enumerate(lengths):
        H, final = oracle.bidirectional_lstm(x[b, :length], p)
        assert_close(numpy(hs)[b, :length], H, "states")
        assert (numpy(hs)[b, length:] == 0).all()
        assert_close(numpy(last.h)[b], final.h, "final h")
        assert_close(numpy(last.c)[b], final.c, "final c")


@covers(arnet=[3, 4])
@given(strategies.generators(), strategies.masks(max_batch=2, empty=True), st.integers(1, 4))
def test_the_attentive_lstm_is_the_oracle_s(generator, mask, T):
    """Whatever padding of the memory holds; without rows the context is zero."""
    (B, L), d_x, d, d_s = mask.shape, 3, 2, 4
    layer = AttentiveLSTM(d_x, d, d_s, 5)
    parameters = load(layer, generator)
    xs, memory = (generator.standard_normal(shape) for shape in ((B, T, d_x), (B, L, d_s)))
    padded = tensor(np.where(mask[..., None], memory, np.nan))
    hs, last = layer(tensor(xs), padded, torch.from_numpy(mask))
    torch.autograd.backward(hs.sum())
    assert np.isfinite(flat(gradients(layer))).all()
    of_lstm = {n.removeprefix("lstm."): v for n, v in parameters.items() if "lstm" in n}
    of_score = {n.removeprefix("attention."): v for n, v in parameters.items() if "attention" in n}
    T_map, scores = attentive_map(of_lstm, d_x), score_map(of_score)

    def score(h, s):
        return oracle_attention.additive_score(h, s, scores)

    for b in range(B):
        s, state = memory[b][mask[b]], oracle.zero_state(d)
        for t in range(T):
            z = oracle_attention.soft_attention(state.h, s, score) if len(s) else np.zeros(d_s)
            state = oracle.attentive_lstm(xs[b, t], z, state, T_map)
            assert_close(numpy(hs)[b, t], state.h, f"step {t}")
        assert_close(numpy(last.c)[b], state.c, "last c")


@given(strategies.generators(), st.integers(1, 3))
def test_steps_of_several_states_attend_to_one_memory(generator, K):
    """K hypotheses of each sequence by steps: as many sequences with their memory repeated."""
    layer = AttentiveLSTM(3, 2, 4, zoneout=(0.2, 0.1)).eval()
    load(layer, generator)
    memory, lengths = tensor(generator.standard_normal((2, 5, 4))), torch.tensor([5, 2])
    xs = tensor(generator.standard_normal((2 * K, 3, 3)))
    local = layer.attention.project(memory, lengths)
    state = layer.lstm.zero_state(2 * K)
    whole, _ = layer(xs, memory.repeat_interleave(K, 0), lengths.repeat_interleave(K))
    for t in range(3):
        state = layer.step(xs[:, t], state, local)
        assert_close(numpy(state.h), numpy(whole)[:, t], f"step {t}")


@given(
    strategies.generators(),
    strategies.masks(max_batch=3, empty=True),
    st.integers(1, 4),
    st.tuples(st.sampled_from((0.0, 0.3, 1.0)), st.sampled_from((0.0, 0.3))),
    st.sampled_from(("state", "update", None)),
    st.booleans(),
)
def test_the_attentive_loop_is_its_steps_with_whatever_regularises(
    generator, mask, T, zoneout, dropped, training
):
    """Outputs, states and the gradient of every input and weight."""
    options = {"zoneout": zoneout}
    if dropped:
        options |= {"recurrent_dropout": 0.5, "recurrent_dropout_of": dropped}
    layer = AttentiveLSTM(3, 2, 4, 5, **options)
    load(layer, generator)
    layer.train(training)
    (B, L), found = mask.shape, []
    drawn = [generator.standard_normal(s) for s in ((B, T, 3), (B, L, 4), (B, 2), (B, 2))]
    # of what comes out, the last states too
    weights = [tensor(generator.standard_normal(s)) for s in ((B, T, 2), (B, 2), (B, 2))]
    masks = layer.lstm.masks(T, B)
    for implementation in ("literal", "custom_backward"):
        layer.lstm.implementation = implementation
        layer.zero_grad()
        xs, memory, h, c = given_ = [tensor(x).requires_grad_() for x in drawn]
        lengths = torch.from_numpy(mask)
        hs, last = layer(xs, memory, lengths, State(h, c), masks)
        loss = sum((w * x).sum() for w, x in zip(weights, (hs, *last), strict=True))
        torch.autograd.backward(loss)
        found.append(([numpy(x) for x in (hs, *last)], [numpy(x.grad) for x in given_]))
        found[-1] = *found[-1], flat(gradients(layer))
    (outputs, inputs, parameters), expected = found[1], found[0]
    for ours, theirs in zip((*outputs, *inputs), (*expected[0], *expected[1]), strict=True):
        assert_close(ours, theirs)
    assert_close(parameters, expected[2], "gradients")


@pytest.mark.parametrize("inside", [False, True])
def test_autocast_changes_nothing_of_the_attentive_loop(inside):
    layer, found = AttentiveLSTM(3, 4, 5), []
    xs, memory = torch.randn(2, 6, 3), torch.randn(2, 5, 5)
    for enabled in (False, True):
        layer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            hs, last = layer(xs, memory, [5, 2])
            if inside:
                torch.autograd.backward(hs.sum())
        if not inside:
            torch.autograd.backward(hs.sum())
        found.append([numpy(x) for x in (hs, *last)])
        assert np.isfinite(flat(gradients(layer))).all()
        if not inside:  # what else there is in the backward pass is cast there
            found[-1].append(flat(gradients(layer)))
    for plain, cast in zip(*found, strict=True):
        assert (plain == cast).all()


def test_the_library_s_lstm_does_not_attend():
    with pytest.raises(ValueError, match="the library's LSTM does not attend"):
        AttentiveLSTM(3, 2, 4, implementation="library")
    with pytest.raises(ValueError, match="the library's LSTM does not attend"):
        attentive_nic(5, 3, d_embedding=2, hidden_size=2).implement("library")


@pytest.mark.parametrize("one", ["xs", "read", "h", "c", "weight_x", "weight_h", "bias"])
def test_each_has_its_gradient_where_no_other_needs_one(one: str) -> None:
    lstm = LSTM(3, 2, read_only=True).double().requires_grad_(False)
    generator = torch.Generator().manual_seed(0)
    shapes = {"xs": (2, 4, 3), "read": (2, 4, 2), "h": (2, 2), "c": (2, 2)}
    given = {
        name: torch.randn(shape, generator=generator, dtype=torch.float64)
        for name, shape in shapes.items()
    }
    leaf = given[one] if one in given else lstm.get_parameter(one)
    leaf.requires_grad_()
    found = []
    for lstm.implementation in ("literal", "custom_backward"):
        state = State(given["h"], given["c"])
        hs, last = lstm(given["xs"], state, read=given["read"])
        found += torch.autograd.grad(hs.square().sum() + last.c.sum(), leaf)
    assert_close(numpy(found[1]), numpy(found[0]), one)
    assert found[0].abs().min() > 0
