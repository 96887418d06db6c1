"""Small captioners with features to caption, and one that reads no token at a time."""

import numpy as np
import torch
from hypothesis import strategies as st

from benchmarks.verify import strategies
from tests.support.parity import load, tensor
from torch_impl.models import Captioner, Configuration


class Whole:
    """A captioner that can only read whole prefixes."""

    def __init__(self, model):
        self.start_id, self.end_id, self.pad_id = model.start_id, model.end_id, model.pad_id
        self.max_length, self.encode, self.decode = model.max_length, model.encode, model.decode


@st.composite
def captioners(draw):
    """Any pairing in evaluation mode, with ragged features, images without regions included."""
    fields = draw(strategies.configurations())
    model = Captioner(Configuration(**fields)).eval()
    load(model, draw(strategies.generators()))
    images = draw(strategies.tokens(fields["d_feature"], kinds=("normal", "zeros"), empty=True))
    return model, tensor(images.filled(np.nan)), torch.from_numpy(images.mask)
