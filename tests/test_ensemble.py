"""Ensembles: the mean of the members' probabilities, whoever decodes."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.verify import strategies
from benchmarks.verify.tolerances import assert_close
from reference import decoding as oracle
from tests.support.parity import load, numpy, tensor
from torch_impl import models
from torch_impl.common.protocols import IncrementalModel
from torch_impl.decoding import search as decoding
from torch_impl.decoding.ensemble import Ensemble
from torch_impl.models import Captioner, Configuration

SHARED = ("d_feature", "vocabulary_size")
RECURRENT = (models.nic, models.attentive_nic, models.sequence_to_sequence)


@st.composite
def cases(draw):
    """One to three members of any kind in float64; ragged features, whatever in their padding."""
    first = draw(strategies.configurations())
    shared = {name: first[name] for name in SHARED}
    mixers = strategies.configurations().map(lambda o: Captioner(Configuration(**o | shared)))
    units = {"d_embedding": 3, "hidden_size": 4, "max_length": 7}
    recurrent = st.sampled_from(RECURRENT).map(lambda make: make(**shared, **units))
    others = draw(st.lists(mixers | recurrent, max_size=2))
    members = [Captioner(Configuration(**first)), *others]
    generator = draw(strategies.generators())
    for member in members:
        load(member, generator)
    features = draw(strategies.tokens(first["d_feature"], kinds=("normal",)))
    return Ensemble(members).eval(), tensor(features.x), torch.from_numpy(features.mask)


def members_oracle(model, features):
    """The members asked one by one, each prefix anew."""

    def of(member):
        return lambda prefix: numpy(member(features[None], torch.tensor([prefix]))[0, -1])

    return oracle.ensemble([of(member) for member in model._members()])


@given(cases(), st.integers(1, 3), st.integers(2, 6))
def test_the_members_decode_together(case, beam_size, max_length):
    model, features, mask = case
    assert isinstance(model, IncrementalModel)
    options = {"beam_size": beam_size, "max_length": max_length, "num_return": beam_size}
    found = decoding.beam_search(model, features, mask, **options)
    for image, valid, hypotheses in zip(features, mask, found, strict=True):
        next_log_probs = members_oracle(model, image[valid])
        ids = {"start": model.start_id, "end": model.end_id}
        expected = oracle.beam_search(next_log_probs, **ids, **options)
        assert [h.tokens for h in hypotheses] == [list(h.tokens) for h in expected]
        for ours, theirs in zip(hypotheses, expected, strict=True):
            assert_close(np.array(ours.log_probs), np.array(theirs.log_probs))
        whole = model.decode(torch.tensor([hypotheses[0].tokens]), model.encode(image[valid][None]))
        assert_close(numpy(whole[0, 0]), next_log_probs((model.start_id,)))
        assert_close(numpy(whole.exp().sum(-1)), np.ones(whole.shape[:2]))


@given(cases(), st.integers(1, 4))
def test_copies_of_a_model_are_the_model(case, copies):
    model, features, mask = case
    member = next(model._members())
    options = {"beam_size": 2, "max_length": 5, "num_return": 2}
    alone = decoding.beam_search(member, features, mask, **options)
    together = decoding.beam_search(Ensemble([member] * copies), features, mask, **options)
    for a, b in zip(alone, together, strict=True):
        assert [h.tokens for h in a] == [h.tokens for h in b]
        for ours, theirs in zip(b, a, strict=True):
            assert_close(np.array(ours.log_probs), np.array(theirs.log_probs))


def test_members_that_do_not_go_together_are_named():
    fields = {
        "vocabulary_size": 9,
        "d_feature": 4,
        "encoder": "attention",
        "decoder": "attention",
        "encoder_reduction": "norm",
        "decoder_reduction": "norm",
        "d_model": 4,
        "d_ff": 4,
        "num_heads": 1,
    }
    model = Captioner(Configuration(**fields))
    with pytest.raises(ValueError, match="no members"):
        Ensemble([])
    for name in ("d_feature", "vocabulary_size", "end_id"):
        other = Captioner(Configuration(**(fields | {name: 5})))
        with pytest.raises(ValueError, match=rf"members' {name} are \[\d, 5\], expected the same"):
            Ensemble([model, other])
    from_the_middle = models.middle_out_captioner(9, 4, d_embedding=2, hidden_size=2)
    with pytest.raises(ValueError, match="member 1 decodes from the middle"):
        Ensemble([model, from_the_middle])
    with pytest.raises(ValueError, match=r"memory has shape \(1, 2, 4\), expected \(B, L, 8\)"):
        Ensemble([model, model]).decode(torch.ones(1, 1, dtype=torch.int64), torch.zeros(1, 2, 4))
