"""LSTM layers: every implementation against the oracle, and what must hold of all of them."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.verify import strategies
from benchmarks.verify.tolerances import assert_close
from reference import recurrent as oracle
from tests.support import tolerances
from tests.support.covers import covers
from tests.support.parity import (
    Array,
    flat,
    gradients,
    load,
    numpy,
    tensor,
)
from tests.support.recurrent_parity import through_the_oracle
from torch_impl.recurrent import (
    DROPPED,
    LSTM,
    READINGS,
    AttentiveLSTM,
    Masks,
    State,
    loop,
    read_only_inputs,
)

IMPLEMENTATIONS = ("literal", "custom_backward", "library")
CELLS = ("lstm", "printed", "read only")


@dataclass
class Case:
    """A layer, what its parameters are, a padded batch for it, and the masks of all steps."""

    lstm: LSTM
    parameters: dict[str, Array]
    batch: strategies.Tokens
    start: tuple[Array, Array]
    read: Array | None
    masks: Masks

    def run(self, x, start, read):
        mask = torch.from_numpy(self.batch.mask)
        return self.lstm(x, State(*start), mask, read=read, masks=self.masks)

    def graded(self):
        """Outputs and gradients, of a loss that every output has a part in."""
        generator = np.random.default_rng(0)
        x, start = tensor(self.batch.x, grad=True), tuple(tensor(s, grad=True) for s in self.start)
        read = None if self.read is None else tensor(self.read, grad=True)
        self.lstm.zero_grad()
        hs, (h, c) = self.run(x, (start[0], start[1]), read)
        factors = (tensor(generator.standard_normal(s.shape)) for s in self.start)
        final = sum((s * factor).sum() for s, factor in zip((h, c), factors, strict=True))
        torch.autograd.backward((hs * tensor(self.dO)).sum() + final)
        found = {**gradients(self.lstm), "x": numpy(x.grad), "h": numpy(start[0].grad)}
        found |= {"c": numpy(start[1].grad)} | ({} if read is None else {"read": numpy(read.grad)})
        return {"hs": numpy(hs), "h": numpy(h), "c": numpy(c)}, found

    @property
    def dO(self):
        """The gradient by the states, of their width."""
        shape = (*self.batch.mask.shape, self.lstm.hidden_size)
        return np.random.default_rng(1).standard_normal(shape)


@st.composite
def cases(draw, plain=False, kinds=strategies.KINDS, cells=CELLS):
    """Every kind of cell, in training and in evaluation; padding anywhere; T from 1."""
    d_x, d = draw(strategies.widths(4)), draw(strategies.widths(4))
    rate = st.just(0.0) if plain else st.sampled_from([0.0, 0.3, 1.0])
    kind = "lstm" if plain else draw(st.sampled_from(cells))
    printed = kind != "lstm"
    lstm = LSTM(
        d_x,
        d,
        bias=not printed,
        squash=not printed,
        read_only=kind == "read only",
        zoneout=(draw(rate), draw(rate)),
        recurrent_dropout=min(draw(rate), 0.5),
        # the oracle's update is that of the usual LSTM
        recurrent_dropout_of="state" if printed else draw(st.sampled_from(DROPPED)),
    )
    lstm.train(draw(st.booleans()))
    batch = draw(strategies.tokens(d_x, kinds=kinds, empty=True))
    B, T = batch.mask.shape
    generator = draw(strategies.generators())
    parameters = load(lstm, generator)
    start = generator.standard_normal((2, B, d))
    read = generator.standard_normal((B, T, d)) if lstm.read_only else None
    torch.manual_seed(int(generator.integers(2**31)))
    return Case(lstm, parameters, batch, (start[0], start[1]), read, lstm.masks(T, B))


@covers(arnet=[1, 2], lstm_readonly=[3, 6, 7, 8, 9, 10, 16, 17])
@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("implementation", ["literal", "custom_backward", "auto"])
@settings(max_examples=10)
@given(st.data(), st.sampled_from(strategies.FILLINGS))
def test_a_padded_batch_is_each_sequence_through_the_oracle(kind, implementation, data, filling):
    """Every state and the last one, whatever padding holds; padded steps come out zero."""
    case = data.draw(cases(cells=(kind,)))
    case.lstm.implementation = implementation
    x, start = tensor(case.batch.filled(filling)), (tensor(case.start[0]), tensor(case.start[1]))
    read = None if case.read is None else tensor(case.read)
    hs, last = case.run(x, start, read)
    for b, valid in enumerate(case.batch.mask):
        masks = [
            None if m is None else numpy(m.expand(*m.shape[:2], case.lstm.hidden_size))[valid, b]
            for m in case.masks
        ]
        reads = None if case.read is None else case.read[b][valid]
        begin = oracle.State(case.start[0][b], case.start[1][b])
        xs = case.batch.x[b][valid]
        states = through_the_oracle(case.lstm, case.parameters, xs, begin, reads, *masks)
        end = states[-1] if states else begin
        if states:
            assert_close(numpy(hs)[b, valid], [state.h for state in states], "states")
        assert_close(numpy(last.h)[b], end.h, "last h")
        assert_close(numpy(last.c)[b], end.c, "last c")
    assert (numpy(hs)[~case.batch.mask] == 0).all()


@pytest.mark.parametrize("kind", CELLS)
@given(st.data(), st.integers(1, 2000))
def test_the_loop_and_its_gradients_are_the_literal_form_s(kind, data, chunk):
    """By inputs, both states, what is read, and every parameter; in chunks of any size."""
    case = data.draw(cases(cells=(kind,)))
    case.lstm.implementation = "literal"
    expected, by_autograd = case.graded()
    case.lstm.implementation = "custom_backward"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "CHUNK", chunk)
        found, by_hand = case.graded()
    for name, value in expected.items():
        assert_close(found[name], value, name)
    assert_close(flat(by_hand), flat(by_autograd), "gradients")


@given(cases(plain=True))
def test_the_library_s_lstm_and_its_gradients_are_the_literal_form_s(case):
    """Of lengths, 0 included; of a mask with holes it says that it cannot."""
    lengths = case.batch.mask.sum(1)
    prefix = (np.arange(case.batch.mask.shape[1]) < lengths[:, None]) == case.batch.mask
    case.lstm.implementation = "library"
    if not prefix.all():
        with pytest.raises(ValueError, match="pads at the end only"):
            case.graded()
        return
    found, by_library = case.graded()
    case.lstm.implementation = "literal"
    expected, by_autograd = case.graded()
    for name, value in expected.items():
        assert_close(found[name], value, name)
    assert_close(flat(by_library), flat(by_autograd), "gradients")


@given(cases(), st.sampled_from(IMPLEMENTATIONS[:2]), strategies.generators())
def test_a_sequence_in_two_parts_is_the_whole_and_steps_are_too(case, implementation, generator):
    """The state carries over: so does what comes after change nothing before."""
    lstm, masks = case.lstm, case.masks
    lstm.implementation = implementation
    x, read = tensor(case.batch.x), None if case.read is None else tensor(case.read)
    start = State(tensor(case.start[0]), tensor(case.start[1]))
    T = x.shape[1]
    whole, last = lstm(x, start, read=read, masks=masks)
    state, by_steps = start, []
    for t in range(T):
        state = lstm.step(x[:, t], state, None if read is None else read[:, t], masks.at(t))
        by_steps.append(state.h)
    assert_close(numpy(torch.stack(by_steps, 1)), numpy(whole), "steps")
    assert_close(numpy(state.c), numpy(last.c), "c after the steps")
    cut = int(generator.integers(T))
    if not cut:
        return
    state, parts = start, []
    for part in (slice(None, cut), slice(cut, None)):
        some = Masks(*(None if m is None else m[part] for m in masks))
        reads = None if read is None else read[:, part]
        hs, state = lstm(x[:, part], state, read=reads, masks=some)
        parts.append(hs)
    assert_close(numpy(torch.cat(parts, 1)), numpy(whole), "parts")
    assert_close(numpy(state.c), numpy(last.c), "c after the parts")


@given(cases(plain=True), st.sampled_from(IMPLEMENTATIONS[:2]))
def test_zoneout_has_its_limits(case, implementation):
    """0 is the plain LSTM to the bit, in training too; 1 leaves the state as it began."""
    case.lstm.implementation = implementation
    plain = case.graded()
    case.lstm.zoneout = (0.0, 0.0)
    zeros = torch.zeros(case.batch.mask.shape[1], len(case.batch.mask), 1, dtype=torch.float64)
    for masks in (case.lstm.masks(*case.batch.mask.T.shape), Masks(zeros, zeros)):
        case.masks = masks
        for found, expected in zip(case.graded(), plain, strict=True):
            assert all(np.array_equal(found[name], expected[name]) for name in expected)
    case.lstm.zoneout = (1.0, 1.0)
    case.masks = case.lstm.masks(*case.batch.mask.T.shape)
    outputs, found = case.graded()
    assert np.array_equal(outputs["h"], case.start[0])
    assert np.array_equal(outputs["c"], case.start[1])
    assert not found["weight_x"].any()
    assert not found["x"].any()


@given(strategies.generators(), st.sampled_from(READINGS), st.integers(1, 5))
def test_what_is_read_is_the_oracle_s(generator, reading, T):
    xs = generator.standard_normal((2, T, 3))
    found = numpy(read_only_inputs(tensor(xs), reading))
    for b in range(2):
        assert np.array_equal(found[b], oracle.read_only_inputs(xs[b], reading))


@pytest.mark.parametrize("of", DROPPED)
def test_masks_are_random_in_training_and_the_rates_in_evaluation(of):
    lstm = LSTM(2, 50, zoneout=(0.2, 0.6), recurrent_dropout=0.25, recurrent_dropout_of=of)
    masks = lstm.masks(40, 20)
    z_c, z_h = masks.z_c, masks.z_h
    factors = masks.h_dropout if of == "state" else masks.g_dropout
    assert sum(mask is None for mask in masks) == 1
    assert z_c is not None
    assert z_h is not None
    assert factors is not None
    for mask, rate in ((z_c, 0.2), (z_h, 0.6), ((factors == 0).float(), 0.25)):
        assert set(mask.unique().tolist()) == {0.0, 1.0}
        deviation = (rate * (1 - rate) / mask.numel()) ** 0.5
        assert abs(mask.mean().item() - rate) < tolerances.DEVIATIONS * deviation
        same = rate**2 + (1 - rate) ** 2  # of two that are independent
        for dim in range(3):  # steps, sequences, units
            n = mask.shape[dim] - 1
            agree = (mask.narrow(dim, 0, n) == mask.narrow(dim, 1, n)).double()
            deviation = (3 * same * (1 - same) / agree.numel()) ** 0.5
            assert abs(agree.mean().item() - same) < tolerances.DEVIATIONS * deviation, dim
    assert factors.unique().tolist() == [0, np.float32(1 / 0.75)]
    z_c, z_h, *dropped = lstm.eval().masks(4, 3)
    assert z_c is not None
    assert z_h is not None
    assert dropped == [None, None]
    assert z_c.unique().tolist() == [torch.tensor(0.2).item()]
    assert z_h.unique().tolist() == [torch.tensor(0.6).item()]


@pytest.mark.parametrize("implementation", ["literal", "custom_backward"])
def test_layers_compile_whole(implementation):
    lstm = LSTM(3, 4, zoneout=(0.2, 0.5), implementation=implementation).double().eval()
    x, lengths = torch.randn(2, 3, 3, dtype=torch.float64), torch.tensor([3, 1])
    compiled = torch.compile(lstm, backend="aot_eager", fullgraph=True)
    outs, found = [], []
    for form in (compiled, lstm):
        lstm.zero_grad()
        hs, state = form(x, lengths=lengths)
        torch.autograd.backward(hs.square().sum() + state.c.sum())
        outs.append(hs.detach())
        found.append(flat(gradients(lstm)))
    assert_close(outs[0], outs[1])
    assert_close(found[0], found[1], "gradients")


def test_auto_compiles_whole_too():
    lstm, x = LSTM(3, 4).double(), torch.randn(2, 5, 3, dtype=torch.float64)
    compiled = torch.compile(lstm, backend="aot_eager", fullgraph=True)
    for lengths in (None, torch.tensor([5, 2])):
        expected = numpy(lstm(x, lengths=lengths)[0])
        assert_close(numpy(compiled(x, lengths=lengths)[0]), expected)


@pytest.mark.parametrize("masked", ["", *DROPPED])
@pytest.mark.parametrize("chunk", [200, loop.CHUNK])  # of a step or two, and of all
def test_the_loop_is_an_operator_that_pytorch_accepts(masked, chunk, monkeypatch):
    monkeypatch.setattr(loop, "CHUNK", chunk)
    dropout = {"recurrent_dropout": 0.5, "recurrent_dropout_of": masked or "state"}
    lstm = LSTM(2, 3, read_only=True, zoneout=(0.5, 0.5), **dropout).double()
    xs, read = torch.randn(4, 2, 2, dtype=torch.float64), torch.randn(4, 2, 3, dtype=torch.float64)
    masks = lstm.masks(4, 2) if masked else Masks()
    state = (torch.randn(2, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    tensors = (xs.requires_grad_(), lstm.weight_x, lstm.weight_h, lstm.bias, *state, read, *masks)
    torch.library.opcheck(loop.lstm_loop, (*tensors, True, True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("implementation", ["literal", "custom_backward", "library"])
def test_layers_work_under_autocast(implementation, dtype):
    lstm = LSTM(3, 4, implementation=implementation)
    with torch.autocast("cpu", dtype):
        hs, _ = lstm(torch.randn(2, 5, 3), lengths=[5, 2])
    torch.autograd.backward(hs.float().sum())
    assert np.isfinite(numpy(hs)).all()
    assert all(np.isfinite(gradient).all() for gradient in gradients(lstm).values())


def test_operations_are_counted_as_the_literal_form_s():
    """Forward and backward; the first state is a constant, whose gradient the loop makes too."""
    counts = []
    for implementation in ("literal", "custom_backward"):
        lstm = LSTM(3, 4, implementation=implementation)
        x = torch.randn(2, 5, 3, requires_grad=True)
        start = State(*(torch.zeros(2, 4, requires_grad=True) for _ in range(2)))
        with FlopCounterMode(display=False) as counter:
            torch.autograd.backward(lstm(x, start)[0].sum())
        counts.append(counter.get_total_flops())
    assert counts[0] == counts[1] == 3 * 2 * 2 * 5 * 16 * (3 + 4)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: LSTM(0, 2), "input_size must be at least 1, not 0"),
        (lambda: LSTM(2, -1), "hidden_size must be at least 1, not -1"),
        (
            lambda: LSTM(2, 2, zoneout=(0.1, 1.5)),
            r"zoneout is \(0.1, 1.5\), expected prob.*\[0, 1\]",
        ),
        (lambda: LSTM(2, 2, zoneout=(-0.1, 0)), r"zoneout is \(-0.1, 0\)"),
        (lambda: LSTM(2, 2, zoneout=(float("nan"), 0)), r"zoneout is \(nan, 0\)"),
        (lambda: LSTM(2, 2, recurrent_dropout=1.0), r"recurrent_dropout is 1.0, expected in \[0"),
        (lambda: LSTM(2, 2, recurrent_dropout_of="c"), "recurrent_dropout_of is 'c', expected one"),
        (
            lambda: LSTM(2, 2, implementation="fast"),
            "'fast', expected one of auto, literal, custom_backward",
        ),
        (
            lambda: LSTM(2, 2, implementation="library", zoneout=(0.1, 0)),
            "library's LSTM has no zoneout",
        ),
        (lambda: LSTM(2, 2, implementation="library", squash=False), "library's LSTM has no"),
        (lambda: AttentiveLSTM(2, 2, 0), "d_memory must be at least 1, not 0"),
    ],
)
def test_bad_settings_are_named(build, message):
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((2, 5, 4), {}, r"xs has shape \(2, 5, 4\), expected \(B, L, 3\)"),
        ((2, 0, 3), {}, r"xs has shape \(2, 0, 3\), expected at least 1 step"),
        ((2, 5, 3), {"lengths": [5, 6]}, r"lengths \[5, 6\] must lie between 0 and 5"),
        ((2, 5, 3), {"read": torch.zeros(2, 5, 2)}, "has no read-only unit, expected no"),
    ],
)
def test_bad_input_is_named(shape, options, message):
    with pytest.raises(ValueError, match=message):
        LSTM(3, 2)(torch.zeros(shape), **options)


def test_other_bad_input_is_named():
    unit = LSTM(3, 2, read_only=True)
    with pytest.raises(ValueError, match="has a read-only unit, expected its inputs"):
        unit(torch.zeros(2, 5, 3))
    with pytest.raises(ValueError, match=r"read has shape \(2, 4, 2\), expected \(2, 5, 2\)"):
        unit(torch.zeros(2, 5, 3), read=torch.zeros(2, 4, 2))
    with pytest.raises(ValueError, match="reading is 'both', expected one of image, previous"):
        read_only_inputs(torch.zeros(2, 5, 3), "both")
    with pytest.raises(ValueError, match="at least 1 step"):
        AttentiveLSTM(3, 2, 4)(torch.zeros(2, 0, 3), torch.zeros(2, 5, 4))
    with pytest.raises(ValueError, match="memory has shape"):
        AttentiveLSTM(3, 2, 4)(torch.zeros(2, 1, 3), torch.zeros(2, 5, 5))
