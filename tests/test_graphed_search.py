"""Beam search by replayed steps: equal to the search itself, and no step looks into a tensor."""

from typing import TypeVar
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.verify import strategies
from tests.support.captioners import captioners
from tests.support.tables import Table, plain
from torch_impl.decoding.graphs import GraphedBeamSearch
from torch_impl.decoding.search import beam_search
from torch_impl.models import transformer

T = TypeVar("T")


class Recorded(TorchDispatchMode):
    """A CUDA graph's stand-in for the CPU: operations on the very tensors that they were done on,
    done again into the very tensors that they made."""

    def __init__(self):
        super().__init__()
        self.operations = []

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        if operator is torch.ops.aten._local_scalar_dense.default:
            raise AssertionError("a step looked into a tensor, which no graph can")
        kwargs = kwargs or {}
        made = operator(*args, **kwargs)
        self.operations.append((operator, args, kwargs, made))
        return made

    def replay(self):
        for operator, args, kwargs, before in self.operations:
            own = set(map(_memory, _tensors((args, kwargs))))
            after = _tensors(operator(*args, **kwargs))
            for old, new in zip(_tensors(before), after, strict=True):
                # a view, or what was changed in place, has been replayed already
                if _memory(old) not in own:
                    old.copy_(new)


def _tensors(values):
    return [value for value in tree_leaves(values) if isinstance(value, Tensor)]


def _memory(x):
    return x.untyped_storage().data_ptr()


def record(compute):
    graph = Recorded()
    with graph:
        outputs = compute()
    return graph, outputs


@settings(max_examples=10)
@given(captioners(), st.integers(1, 4), st.data())
def test_replayed_steps_equal_the_search(case, beam_size, data):
    model, features, mask = case
    if model.max_length < 2:
        return
    # images that end early and images that do not
    with torch.no_grad():
        model.vocabulary.bias[model.end_id] += data.draw(st.sampled_from([0.0, 5.0]))
    options = {
        "beam_size": beam_size,
        "max_length": data.draw(st.integers(2, model.max_length)),
        "num_return": data.draw(st.integers(1, beam_size)),
    }
    ragged = data.draw(st.booleans())
    features = features if ragged else features.nan_to_num()
    search = GraphedBeamSearch(model, **options, capture=record)
    random = data.draw(strategies.generators())
    for t in range(5):
        lengths = mask if ragged else None
        expected = beam_search(model, features, lengths, **options)
        # at each step it is asked whether the search has ended, or never
        with patch("torch_impl.decoding.graphs.should_check_end", return_value=t % 2 == 0):
            assert list(map(plain, search(features, lengths))) == list(map(plain, expected))
        features = torch.from_numpy(random.normal(size=features.shape)).to(features)
        mask = torch.from_numpy(np.sort(random.random(mask.shape) < 0.7, axis=1)[:, ::-1].copy())


def _captioner():
    sizes = dict.fromkeys(("d_feature", "d_model", "d_ff", "num_heads"), 4)
    sizes |= {"vocabulary_size": 7, "max_length": 4}
    return transformer(**sizes, num_encoder_layers=1, num_decoder_layers=1).eval()


def test_what_does_not_fit_the_graphs_is_named():
    options = {"beam_size": 2, "max_length": 4, "capture": record}
    with pytest.raises(ValueError, match=r"model\.eval"):
        GraphedBeamSearch(_captioner().train(), **options)
    with pytest.raises(ValueError, match="a token at a time"):
        GraphedBeamSearch(Table(), **options)
    search, features = GraphedBeamSearch(_captioner(), **options), torch.randn(2, 3, 4)
    search(features)
    with pytest.raises(ValueError, match=r"shape .*3, 3, 4.* of .*2, 3, 4"):
        search(torch.randn(3, 3, 4))
    with pytest.raises(ValueError, match=r"dtype torch.float64"):
        search(features.double())
    with pytest.raises(ValueError, match="in every call or in none"):
        search(features, torch.tensor([1, 2]))


def test_a_refused_first_batch_leaves_nothing_captured():
    search = GraphedBeamSearch(_captioner(), beam_size=2, max_length=9, capture=record)
    for _ in range(2):
        with pytest.raises(ValueError, match="max_length is 9"):
            search(torch.randn(2, 3, 4))


def test_after_a_capture_that_failed_the_search_is_whole():
    """Captured steps before the one that failed are not replayed as if they were all."""
    steps = iter(range(9))

    def fail_once(compute):
        if next(steps) == 1:
            raise RuntimeError("out of memory")
        return record(compute)

    model, features = _captioner(), torch.randn(2, 3, 4)
    model.vocabulary.bias.data[model.end_id] = -9.0
    search = GraphedBeamSearch(model, beam_size=2, max_length=4, capture=fail_once)
    with pytest.raises(RuntimeError, match="out of memory"):
        search(features)
    expected = list(map(plain, beam_search(model, features, beam_size=2, max_length=4)))
    for _ in range(2):
        assert list(map(plain, search(features))) == expected


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("half", [False, True])
def test_on_a_gpu_replayed_steps_are_the_search(half):
    model = _captioner().cuda()
    search = GraphedBeamSearch(model, beam_size=2, max_length=4)
    with torch.autocast("cuda", torch.bfloat16, enabled=half):
        for _ in range(3):
            features = torch.randn(2, 3, 4, device="cuda")
            expected = beam_search(model, features, beam_size=2, max_length=4)
            assert list(map(plain, search(features))) == list(map(plain, expected))
