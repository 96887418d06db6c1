"""Decoding one token at a time against passes over the whole prefix."""

from dataclasses import asdict
from unittest import mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.verify import strategies
from benchmarks.verify.tolerances import assert_close
from tests.support.captioners import Whole, captioners
from torch_impl.decoding import search as decoding
from torch_impl.layers import kv_cache
from torch_impl.models import Captioner, Configuration


@given(captioners(), st.integers(1, 3), strategies.generators(), st.sampled_from([1, 3, 64]))
def test_incremental_steps_equal_the_prefix_under_any_reordering(case, copies, generator, outputs):
    with mock.patch.object(kv_cache, "OUTPUTS", outputs):  # of so many at a time
        _compare_with_the_prefix(*case, copies, generator)


def _compare_with_the_prefix(model, features, mask, copies, generator):
    memory = model.encode(features, mask)
    state = model.init_cache(memory, mask, copies)
    repeated, repeated_mask = (x.repeat_interleave(copies, 0) for x in (memory, mask))
    prefix = torch.empty(len(memory), copies, 0, dtype=torch.int64)
    for step in range(model.max_length):
        if step:
            order = torch.from_numpy(generator.integers(copies, size=prefix.shape[:2]))
            state.reorder(order)
            prefix = prefix.gather(1, order[..., None].expand_as(prefix))
        words = generator.integers(model.configuration.vocabulary_size, size=prefix.shape[:2])
        prefix = torch.cat([prefix, torch.from_numpy(words)[..., None]], -1)
        whole = model.decode(prefix.flatten(0, 1), repeated, repeated_mask)[:, -1].detach()
        assert_close(state.step(prefix[..., -1]).flatten(0, 1), whole)
    with pytest.raises(ValueError, match="as many as max_length"):
        state.step(prefix[..., -1])


@given(captioners(), st.integers(1, 4))
def test_captions_are_those_of_whole_prefixes(case, beam_size):
    model, features, mask = case
    if model.max_length < 2:
        return
    options = {"beam_size": beam_size, "max_length": model.max_length}
    found = decoding.beam_search(model, features, mask, **options)
    expected = decoding.beam_search(Whole(model), features, mask, **options)
    for (one,), (other,) in zip(found, expected, strict=True):
        assert_close(one.score, other.score)


@pytest.mark.parametrize("decoder", ["attention", "dynamic:2"])
def test_a_cache_holds_eight_beams_of_forty_words(decoder):
    """As it holds few: the word that ends a caption is all but impossible."""
    torch.manual_seed(0)
    fields = {"vocabulary_size": 11, "d_feature": 4, "d_model": 8, "d_ff": 8, "num_heads": 2}
    mixers = {"encoder": "attention", "decoder": decoder}
    reductions = {"encoder_reduction": "norm", "decoder_reduction": "norm"}
    configuration = Configuration(**fields, **mixers, **reductions, max_length=40)
    model = Captioner(configuration).double().eval()
    with torch.no_grad():
        model.vocabulary.bias[model.end_id] = -100
    features = torch.randn(2, 3, 4, dtype=torch.float64)
    options = {"beam_size": 8, "max_length": 40, "num_return": 8}
    found = decoding.beam_search(model, features, **options)
    expected = decoding.beam_search(Whole(model), features, **options)
    for of_one, of_whole in zip(found, expected, strict=True):
        assert [len(one.tokens) for one in of_one] == [40] * 8
        assert [one.tokens for one in of_one] == [one.tokens for one in of_whole]
        assert_close([one.score for one in of_one], [one.score for one in of_whole])


@given(captioners(), st.integers(1, 3), st.integers(0, 99))
def test_without_dropout_training_reads_single_tokens_and_samples_alike(case, num_samples, seed):
    model, features, mask = case
    if model.max_length < 2:
        return
    options = {"max_length": model.max_length, "num_samples": num_samples}
    expected, found = (
        decoding.sample(model.train(training), features, mask, **options, generator=_seeded(seed))
        for training in (False, True)
    )
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)
    dropped = Configuration(**{**asdict(model.configuration), "dropout": 0.5})
    drawing = Captioner(dropped)
    assert not model.is_stochastic
    assert drawing.train().is_stochastic
    assert not drawing.eval().is_stochastic


def _seeded(seed):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("autocast", [False, True])
def test_low_precision_stays_in_its_dtype(autocast, low):
    fields = {"vocabulary_size": 9, "d_feature": 4, "d_model": 8, "d_ff": 8, "num_heads": 2}
    mixers = {"encoder": "static:3,2", "decoder": "dynamic:2"}
    reductions = {"encoder_reduction": "linear", "decoder_reduction": "linear"}
    dtype = torch.float32 if autocast else low
    model = Captioner(Configuration(**fields, **mixers, **reductions)).eval().to(dtype)
    with torch.autocast("cpu", low, enabled=autocast):
        state = model.init_cache(model.encode(torch.randn(2, 3, 4, dtype=dtype)), num_beams=2)
        for _ in range(3):
            log_probs = state.step(torch.ones(2, 2, dtype=torch.int64))
            state.reorder(torch.tensor([[1, 0], [0, 0]]))
    assert log_probs.dtype == torch.float32
    assert log_probs.isfinite().all()


def test_what_cannot_be_is_named():
    fields = {"vocabulary_size": 9, "d_feature": 4, "d_model": 8, "d_ff": 8, "num_heads": 2}
    mixers = {"encoder": "attention", "decoder": "attention"}
    reductions = {"encoder_reduction": "norm", "decoder_reduction": "norm"}
    model = Captioner(Configuration(**fields, **mixers, **reductions, dropout=0.5))
    memory = torch.zeros(2, 3, 8)
    with pytest.raises(ValueError, match=r"expected model\.eval\(\)"):
        model.train().init_cache(memory)
    state = model.eval().init_cache(memory, num_beams=2)
    with pytest.raises(ValueError, match=r"tokens has shape \(2, 3\), expected \(2, 2\)"):
        state.step(torch.zeros(2, 3, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"memory has shape \(2, 3, 5\)"):
        model.init_cache(torch.zeros(2, 3, 5))


def test_a_bad_step_is_refused_and_leaves_the_hypotheses_as_they_were():
    fields = {"vocabulary_size": 9, "d_feature": 4, "d_model": 8, "d_ff": 8, "num_heads": 2}
    mixers = {"encoder": "static:3,2", "decoder": "dynamic:2"}
    reductions = {"encoder_reduction": "linear", "decoder_reduction": "linear"}
    model = Captioner(Configuration(**fields, **mixers, **reductions)).eval()
    memory = model.encode(torch.randn(2, 3, 4))
    for name in ("num_beams", "max_length"):
        with pytest.raises(ValueError, match=f"{name} must be at least 1, not 0"):
            model.init_cache(memory, **{name: 0})
    state = model.init_cache(memory)
    with pytest.raises(IndexError):
        state.step(torch.tensor([[3], [9]]))
    assert state.length == 0
