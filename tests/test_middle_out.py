"""Middle-out decoders and their left-to-right baseline: the loop, the captioners, the oracle."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from benchmarks.verify.strategies import fill, generators, masks
from benchmarks.verify.tolerances import assert_close
from reference import middle_out as oracle
from tests.support.covers import covers
from tests.support.middle_out import (
    KINDS,
    PAD,
    captions,
    encoded,
    parameters_of,
    sides,
    torch_lstm,
    turned,
)
from tests.support.parity import flat, gradients, numpy, tensor
from tests.support.tables import teacher_forced
from torch_impl.checkpoints import checkpoint as checkpoints
from torch_impl.decoding import search as decoding
from torch_impl.middle_out import (
    SELF_ATTENTION,
    Weights,
    interleave,
    most_common_word,
    run,
    run_by_steps,
    split,
    weight_sizes,
)
from torch_impl.models import (
    MiddleOutCaptioner,
    build,
    configuration,
    middle_out_captioner,
    sequence_to_sequence,
)
from torch_impl.training.objectives import cross_entropy


@dataclass(frozen=True)
class Loop:
    """Arguments of ``run``, leaves in float64, and the gradients by h and c."""

    weights: Weights
    state: tuple[Tensor, Tensor]
    inputs: Tensor
    memory: Tensor | None
    mask: Tensor | None
    attend_mask: Tensor | None
    dh: Tensor
    dc: Tensor

    @property
    def leaves(self):
        """Everything that has a gradient."""
        named = {**self.weights._asdict(), "inputs": self.inputs, "memory": self.memory}
        named |= {"h_0": self.state[0], "c_0": self.state[1]}
        return {name: x for name, x in named.items() if x is not None}


@st.composite
def loops(draw):
    """Lanes, sides, sequences and steps of any number, with and without memory and holes."""
    generator, lanes, sides = draw(generators()), draw(st.integers(1, 2)), draw(st.integers(1, 3))
    valid = draw(masks(empty=True))
    B, d, e = len(valid), draw(st.integers(1, 4)), draw(st.integers(1, 3))
    m, T = draw(st.integers(0, 3)), draw(st.integers(1, 6))

    def leaf(*shape):
        return tensor(fill(generator, shape), grad=True)

    sizes = weight_sizes(sides, d, m, e, draw(KINDS))
    weights = {name: leaf(size[0], lanes, *size[1:]) for name, size in sizes.items()}
    sequences = lanes, B
    holes = torch.from_numpy(generator.random((*sequences, T)) < 0.6)
    return Loop(
        Weights(**weights),
        (leaf(*sequences, d), leaf(*sequences, d)),
        leaf(*sequences, T, e),
        leaf(*sequences, valid.shape[1], m) if m else None,
        torch.from_numpy(valid).expand(lanes, *valid.shape) if m and draw(st.booleans()) else None,
        holes if draw(st.booleans()) else None,
        leaf(*sequences, T, d).detach(),
        leaf(*sequences, T, d).detach(),
    )


def results(loop, h, c):
    """The outputs and their gradients; zeros for an input without a gradient."""
    for x in loop.leaves.values():
        x.grad = None
    torch.autograd.backward([h, c], [loop.dh, loop.dc])
    found = {
        name: np.zeros(x.shape) if x.grad is None else numpy(x.grad)
        for name, x in loop.leaves.items()
    }
    return numpy(torch.stack([h, c])), found


@covers(middle_out=[1, 2, 3, 4, 5, 6, 7])
@settings(max_examples=100)
@given(loops())
def test_the_loop_is_its_steps_forward_and_gradients(loop):
    whole = run(loop.weights, loop.state, loop.inputs, loop.memory, loop.mask, loop.attend_mask)
    out, gradients = results(loop, *whole)
    arguments = loop.memory, loop.mask, loop.attend_mask
    by_steps = run_by_steps(loop.weights, loop.state, loop.inputs, *arguments)
    expected, gradients_by_steps = results(loop, *by_steps)
    assert_close(out, expected)
    assert_close(flat(gradients), flat(gradients_by_steps), "gradients")


@settings(max_examples=40)
@given(loops(), st.data())
def test_sequences_that_have_ended_are_left_out_of_the_loop(loop, data):
    """An ended sequence gives zeros and no gradient, and changes no other."""
    B, T = loop.inputs.shape[1:3]
    sizes = st.lists(st.integers(0, T), min_size=B, max_size=B)
    lengths = torch.tensor(sorted(data.draw(sizes), reverse=True))
    P = loop.weights.sides
    lengths = (lengths + P - 1) // P * P  # the sides end together
    active = torch.arange(T) < lengths[:, None]
    arguments = (loop.weights, loop.state, loop.inputs, loop.memory, loop.mask, loop.attend_mask)
    counts = active.sum(0).tolist()
    here = loop.__class__(*arguments, *(x.where(active[..., None], 0) for x in (loop.dh, loop.dc)))
    out, gradients = results(here, *run(*arguments, active=counts))
    all_of_them = run(*arguments)
    expected, gradients_of_all = results(here, *all_of_them)
    assert_close(out, np.where(numpy(active)[..., None], expected, 0))
    assert_close(flat(gradients), flat(gradients_of_all), "gradients")


@covers(middle_out=[1, 2, 3, 4, 5, 6, 7])
@settings(max_examples=40)
@given(captions(middle_out=True))
def test_a_padded_batch_is_each_caption_from_its_middle_by_the_oracle(case):
    log_p = numpy(case.model(case.features, case.tokens, case.lengths))
    for b, (left, middle, right) in enumerate(case.captions):
        kind = case.model.configuration.self_attention
        order = sides(case.model)
        given = left, middle, right, *encoded(case, b), case.parameters, kind
        expected = oracle.middle_out(*given, side_order=order)
        for turn, (side, half) in enumerate(
            zip(order, turned(case.model, left, right), strict=True)
        ):
            assert_close(log_p[b, turn::2][: len(half)], expected[side], side)


@covers(middle_out=[1, 2, 3, 4, 5, 6, 7])
@settings(max_examples=40)
@given(captions(middle_out=False))
def test_a_padded_batch_is_each_caption_left_to_right_by_the_oracle(case):
    """The embedded words, with the middle word's embedding appended if there is one."""
    log_p = numpy(case.model(case.features, case.tokens, case.lengths))
    for b, (_, start, right) in enumerate(case.captions):
        words = np.array([start, *right])
        kind = case.model.configuration.self_attention
        parameters = parameters_of(case, b)
        expected = oracle.sequence_to_sequence(words, *encoded(case, b), parameters, kind)
        assert_close(log_p[b, : len(words)], expected)


@settings(max_examples=20)
@given(captions())
def test_a_captioner_by_steps_is_the_loop_forward_and_gradients(case):
    found = {}
    for implementation in ("auto", "literal"):
        model = case.model.implement(implementation)
        model.zero_grad()
        out = model(case.features, case.tokens, case.lengths)
        torch.autograd.backward(out.square().mean())
        by = {n: numpy(p.grad) for n, p in model.named_parameters() if p.grad is not None}
        found[implementation] = numpy(out), flat(by)
    for looped, stepped in zip(*found.values(), strict=True):
        assert_close(looped, stepped)
    with pytest.raises(
        ValueError, match="'library', expected one of auto, literal, custom_backward"
    ):
        case.model.implement("library")


@settings(max_examples=40)
@given(captions(), st.data())
def test_single_steps_are_the_whole_whichever_beam_continues(case, data):
    """Beams of a source read different words, and any continues any."""
    model, B, K = case.model, len(case.lengths), 2
    memory, T = model.encode(case.features, case.lengths), case.tokens.shape[1]
    ids = st.integers(0, model.configuration.vocabulary_size - 1)
    hypotheses = torch.tensor(data.draw(st.lists(ids, min_size=B * K, max_size=B * K))).view(
        B, K, 1
    )
    state = model.init_cache(memory, case.lengths, K, T)
    for t in range(T):
        log_p = state.step(hypotheses[..., -1])
        repeated = memory.repeat_interleave(K, 0), torch.tensor(case.lengths).repeat_interleave(K)
        whole = model.decode(hypotheses.flatten(0, 1), *repeated)[:, -1]
        assert_close(numpy(log_p.flatten(0, 1)), numpy(whole), f"step {t}")
        order = torch.tensor(data.draw(st.permutations(range(K)))).expand(B, K)
        state.reorder(order)
        chosen = hypotheses.gather(1, order[..., None].expand_as(hypotheses))
        hypotheses = torch.cat([chosen, case.tokens[:, t, None, None].expand(B, K, 1)], -1)


@settings(max_examples=30)
@given(captions(middle_out=True), st.sampled_from((0.0, 1e4, np.inf, np.nan)))
def test_padded_rows_of_a_source_reach_nothing(case, filling):
    padding = torch.arange(case.features.shape[1]) >= torch.tensor(case.lengths)[:, None]
    filled = case.features.masked_fill(padding[..., None], filling)
    for a, b in (
        (
            case.model(filled, case.tokens, case.lengths),
            case.model(case.features, case.tokens, case.lengths),
        ),
        (
            case.model.middle_words(filled, case.lengths),
            case.model.middle_words(case.features, case.lengths),
        ),
    ):
        assert torch.equal(a, b)


@settings(max_examples=30)
@given(captions())
def test_the_middle_word_classifier_is_the_oracles(case):
    classifier = case.model.classifier
    assert classifier is not None
    parameters = {f"lstm.{name}": value for name, value in torch_lstm(classifier.lstm).items()}
    parameters["vocabulary.weight"] = numpy(classifier.classes.weight)
    parameters["vocabulary.bias"] = numpy(classifier.classes.bias)
    log_p = case.model.middle_words(case.features, case.lengths)
    for b, length in enumerate(case.lengths):
        rows = case.features[b, :length, : case.model.configuration.d_source]
        expected = oracle.middle_word(numpy(rows), parameters)
        assert_close(numpy(log_p[b].exp()), expected)


@settings(max_examples=30)
@given(captions(middle_out=True))
def test_both_halves_train_in_one_pass(case):
    """The next-token loss is the mean over the words of both halves; padding is left out."""
    tokens = case.tokens
    log_p = case.model(case.features, tokens, case.lengths)
    loss = cross_entropy(log_p[:, :-1], tokens[:, 1:], PAD)
    terms = []
    for b, (left, middle, right) in enumerate(case.captions):
        kind = case.model.configuration.self_attention
        given = left, middle, right, *encoded(case, b), case.parameters, kind
        halves = oracle.middle_out(*given, side_order=sides(case.model))
        for words, rows in ((left, halves["left"]), (right, halves["right"])):
            terms += [-row[word] for word, row in zip(words, rows, strict=True)]
    assert_close(loss.item(), np.mean(terms) if terms else 0.0)


@settings(max_examples=20)
@given(captions(middle_out=False), st.integers(1, 3))
def test_the_left_to_right_model_is_searched_as_any_other(case, beam_size):
    options = {"beam_size": beam_size, "max_length": 5, "num_return": beam_size}
    found = decoding.beam_search(case.model, case.features, case.lengths, **options)
    tokens = [[hypothesis.tokens for hypothesis in image] for image in found]
    forced, mask = teacher_forced(case.model, case.features, case.lengths, tokens)
    for b, image in enumerate(found):
        for k, hypothesis in enumerate(image):
            assert_close(hypothesis.log_probs, numpy(forced[b, k][mask[b, k]]))


@given(st.lists(st.integers(3, 9)), st.integers(3, 9), st.lists(st.integers(3, 9)))
def test_a_caption_is_its_halves_and_its_middle(left, middle, right):
    caption = [word for word in left if word != middle] + [middle, *right]
    outwards, onwards = split(caption, middle, end_id=2)
    assert [*reversed(outwards[:-1]), middle, *onwards[:-1]] == caption
    assert outwards[-1] == onwards[-1] == 2
    tokens = interleave(outwards, middle, onwards, PAD)
    assert [word for word in tokens[1::2] if word != PAD] == outwards
    assert [word for word in tokens[2::2] if word != PAD] == onwards


@given(st.lists(st.lists(st.sampled_from(("a", "sing", "eating", "ring", "go"))), min_size=1))
def test_the_commonest_word_is_a_candidate_that_none_outnumbers(sentences):
    candidates = [word for sentence in sentences for word in sentence if word.endswith("ing")]
    if candidates:
        word = most_common_word(sentences)
        assert all(candidates.count(other) <= candidates.count(word) for other in candidates)
    else:
        with pytest.raises(ValueError, match="no caption has a word in 'ing'"):
            most_common_word(sentences)


def test_a_configuration_and_a_checkpoint_give_the_model_back(tmp_path):
    model = middle_out_captioner(6, 2, middle_words=[3, 4], d_embedding=2, hidden_size=4).eval()
    values = configuration(model.configuration.to_dict())
    assert values == model.configuration and isinstance(build(values), MiddleOutCaptioner)
    checkpoints.save(tmp_path / "x.safetensors", model, {})
    again = checkpoints.load(tmp_path / "x.safetensors").model()
    features, tokens = torch.randn(1, 2, 2), torch.tensor([[3, 2, 2]])
    assert torch.equal(model(features, tokens), again(features, tokens))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 3}, "hidden_size is 3, expected even"),
        ({"self_attention": "all"}, "self_attention is 'all', expected one of none, output"),
        ({"middle_words": (9,)}, "middle word 9 is outside a vocabulary of 6 words"),
        ({"middle_words": (0,)}, "middle word 0 is a special token"),
        ({"dropout": 1.0}, r"dropout is 1.0, expected in \[0, 1\)"),
        ({"end_id": 6}, "end_id 6 is outside"),
        ({"first": "top"}, "first is 'top', expected 'left' or 'right'"),
        ({"first": "right", "middle_out": False}, "first is 'right', expected two sides"),
        ({"reads_middle_word": True}, "reads_middle_word and middle_out: two sides begin with"),
        (
            {"middle_out": False, "reads_middle_word": True, "d_feature": 1},
            "d_feature without the word's column must be at least 1, not 0",
        ),
    ],
)
def test_a_bad_configuration_is_named(changes, message):
    with pytest.raises(ValueError, match=message):
        middle_out_captioner(**{"vocabulary_size": 6, "d_feature": 2, **changes})


def test_bad_input_is_named():
    model = sequence_to_sequence(6, 2, d_embedding=2, hidden_size=4, max_length=3).eval()
    source = torch.randn(2, 3, 2)
    with pytest.raises(ValueError, match="a source is empty"):
        model.encode(source, [3, 0])
    with pytest.raises(ValueError, match="a source is empty"):
        model.encode(source[:, :0])
    with pytest.raises(ValueError, match="middle_words is empty"):
        model.middle_words(source)
    fields = {"d_embedding": 2, "hidden_size": 4, "reads_middle_word": True}
    for word in (6, -1):
        with pytest.raises(ValueError, match="middle words must lie between 0 and 5"):
            sequence_to_sequence(6, 2, **fields).encode(
                source.index_fill(2, torch.tensor([1]), word)
            )
    memory = model.encode(source)
    with pytest.raises(ValueError, match="4 tokens are more than max_length 3"):
        model.decode(torch.ones(2, 4, dtype=torch.int64), memory)
    with pytest.raises(ValueError, match="does not have the middle word 5"):
        split([3, 4], 5, end_id=2)
    state = model.init_cache(memory, max_length=1)
    with pytest.raises(ValueError, match=r"tokens has shape \(2,\), expected \(2, 1\)"):
        state.step(torch.ones(2, dtype=torch.int64))
    state.step(torch.ones(2, 1, dtype=torch.int64))
    with pytest.raises(ValueError, match="1 tokens were read, as many as max_length"):
        state.step(torch.ones(2, 1, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"expected model.eval\(\)"):
        sequence_to_sequence(6, 2, dropout=0.5).train().init_cache(memory)


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("kind", SELF_ATTENTION)
@pytest.mark.parametrize("make", [middle_out_captioner, sequence_to_sequence])
def test_both_passes_work_under_autocast(make, kind, inside):
    """The backward pass is called inside autocast, or outside."""
    model = make(9, 3, self_attention=kind, d_embedding=4, hidden_size=6)
    features, tokens, lengths = torch.randn(2, 4, 3), torch.randint(3, 9, (2, 5)), [4, 2]
    with torch.autocast("cpu", torch.bfloat16):
        log_p = model(features, tokens, lengths)
        if inside:
            torch.autograd.backward(log_p.sum())
        state = model.eval().init_cache(model.encode(features, lengths), num_beams=2)
        step = state.step(tokens[:, :2])
    if not inside:
        torch.autograd.backward(log_p.sum())
    assert log_p.dtype == step.dtype == torch.float32
    for found in (numpy(log_p), numpy(step), flat(gradients(model))):
        assert np.isfinite(found).all()
    memory = model.encode(features, lengths)
    plain = model.states(tokens, memory, lengths)
    with torch.autocast("cpu", torch.bfloat16):
        cast = model.states(tokens, memory, lengths)
    assert torch.equal(plain, cast)
