"""Small middle-out captioners with their weights by the oracle's names, sources and captions."""

from dataclasses import dataclass

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from benchmarks.verify.strategies import fill, generators
from reference import middle_out as oracle
from tests.support.parity import Array, load, numpy
from torch_impl.middle_out import SELF_ATTENTION, interleave
from torch_impl.models import MiddleOutCaptioner, MiddleOutConfiguration

KINDS = st.sampled_from(SELF_ATTENTION)
FIRST = st.sampled_from(("left", "right"))
PAD = 0


def oracle_lstm(W, b):
    """W (in, 4 d) and b (4 d,) as the oracle's ``weight`` and ``bias``."""
    return {"weight": W.T, "bias": b}


def oracle_side(weights):
    """The `Weights` of one side and one lane, by name, as ``reference.middle_out`` has them."""
    lstm = oracle_lstm(weights["W"], weights["b"])
    scores = {name: value for name, value in weights.items() if name.startswith("W_")}
    return {f"lstm.{name}": value for name, value in lstm.items()} | scores


def turned(model, left, right):
    """The halves in the order of their sides' turns, of one side the right one alone."""
    return [(left, right)[side] for side in model.configuration.side_order]


@dataclass(frozen=True)
class Captions:
    """A captioner, its weights by the oracle's names, padded sources and captions in halves."""

    model: MiddleOutCaptioner
    parameters: dict[str, Array]
    features: Tensor
    lengths: list[int]
    captions: list[tuple[list[int], int, list[int]]]

    @property
    def tokens(self):
        """The captions in the generated order, padded."""
        pad, rows = self.model.pad_id, []
        for left, middle, right in self.captions:
            first, *second = turned(self.model, left, right)
            rows.append(interleave(first, middle, *second, pad) if second else [middle, *first])
        longest = max(map(len, rows))
        return torch.tensor([row + [pad] * (longest - len(row)) for row in rows])


def sides(model):
    """The oracle's names of a captioner's sides, in the order of their turns."""
    names = ("left", "right")
    return tuple(names[side] for side in model.configuration.side_order)


def oracle_parameters(model, weights):
    """A captioner's weights by the oracle's names."""
    parameters = {"embedding.weight": weights["embedding.weight"]}
    for ours, name in (("forwards", "forward"), ("backwards", "backward")):
        lstm = torch_lstm(model.encoder.get_submodule(ours))
        parameters |= {f"encoder.{name}.{key}": value for key, value in lstm.items()}
    for p, side in enumerate(sides(model)):
        own = {
            name.removeprefix("decoder_"): value[p]
            for name, value in weights.items()
            if name.startswith("decoder_")
        }
        prefix = side if model.configuration.middle_out else "decoder"
        parameters |= {f"{prefix}.{name}": value for name, value in oracle_side(own).items()}
        parameters[f"{prefix}.vocabulary.weight"] = weights["vocabulary_W"][p]
        parameters[f"{prefix}.vocabulary.bias"] = weights["vocabulary_b"][p]
    return parameters


def torch_lstm(lstm):
    """An ``LSTM``'s weights as the oracle's."""
    W = np.concatenate([numpy(lstm.weight_x), numpy(lstm.weight_h)], -1)
    return {"weight": W, "bias": numpy(lstm.bias)}


@st.composite
def captions(draw, middle_out=None, kind=None, reads_middle_word=None, first=None):
    """Small captioners with normal weights, ragged sources and captions."""
    V, generator = draw(st.integers(4, 7)), draw(generators())
    both = draw(st.booleans()) if middle_out is None else middle_out
    reads = not both and (draw(st.booleans()) if reads_middle_word is None else reads_middle_word)
    words = st.lists(st.integers(1, V - 1), min_size=0, max_size=4)
    model = MiddleOutCaptioner(
        MiddleOutConfiguration(
            vocabulary_size=V,
            d_feature=draw(st.integers(1, 3)) + reads,
            middle_out=both,
            first=draw(FIRST) if both and first is None else first or "left",
            self_attention=draw(KINDS) if kind is None else kind,
            reads_middle_word=reads,
            middle_words=tuple(draw(st.sets(st.integers(3, V - 1), min_size=1))),
            d_embedding=draw(st.integers(1, 3)),
            hidden_size=2 * draw(st.integers(1, 2)),
            max_length=6,
        )
    ).eval()
    weights = load(model, generator)
    lengths = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    features = fill(generator, (len(lengths), max(lengths), model.configuration.d_feature))
    if reads:
        features[..., -1] = generator.integers(0, V, (len(lengths), 1))
    drawn = [
        (draw(words) if both else [], draw(st.integers(1, V - 1)), draw(words)) for _ in lengths
    ]
    named = oracle_parameters(model, weights)
    return Captions(model, named, torch.from_numpy(features), lengths, drawn)


def encoded(case, b):
    """Source ``b``, without padding, through the oracle's encoder."""
    rows = case.features[b, : case.lengths[b], : case.model.configuration.d_source]
    return oracle.encode(numpy(rows), case.parameters)


def parameters_of(case, b):
    """The oracle's, for source ``b``: a word that is read beside all others stands beside them."""
    if not case.model.configuration.reads_middle_word:
        return case.parameters
    words = case.parameters["embedding.weight"]
    given = words[int(case.features[b, 0, -1])]
    beside = np.concatenate([words, np.broadcast_to(given, words.shape)], 1)
    return {**case.parameters, "embedding.weight": beside}
