"""Load the authors' released end-to-end checkpoints to caption pictures (v2 section IV)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.errors import InputError
from benchmarks.files import read_json
from torch_impl.checkpoints.checkpoint import CheckpointError
from torch_impl.checkpoints.released import load_released
from torch_impl.models import EndToEnd

GROUPS = (32, 64, 128, 256, 512)
"""ExpansionNet v2's static expansion coefficients, which cannot be read from its tensors."""
NUM_HEADS = 8
LAYOUT = "a JSON list of the checkpoint's words in the order of their ids"


@dataclass(frozen=True)
class ReleasedWords:
    """The vocabulary of a released checkpoint: words by id, special tokens included."""

    words: Sequence[str]
    start_id: int
    end_id: int
    pad_id: int

    def decode(self, ids: Iterable[int]) -> str:
        """The caption up to the first end, without start and pad."""
        spoken = []
        for i in ids:
            if i == self.end_id:
                break
            if i not in (self.start_id, self.pad_id):
                spoken.append(self.words[i])
        return " ".join(spoken)


def load(
    checkpoint: Path, words: Path, groups: Sequence[int] = GROUPS
) -> tuple[EndToEnd, ReleasedWords]:
    """The model of a released checkpoint and its vocabulary.

    ``words`` is a JSON list of the words by id, ``groups`` the static expansion coefficients.

    Raises:
        InputError: a file is missing, damaged or of another kind; the model captions features, not
            pictures; or its vocabulary has another size.
    """
    listed = read_json(words, LAYOUT)
    if not isinstance(listed, list) or not all(isinstance(word, str) for word in listed):
        raise InputError(f"{words}: expected {LAYOUT}")
    try:
        model = load_released(checkpoint, groups=groups, num_heads=NUM_HEADS)
    except (CheckpointError, ValueError) as error:
        raise InputError(str(error)) from error
    if not isinstance(model, EndToEnd):
        raise InputError(f"{checkpoint}: captions features, expected an end to end checkpoint")
    size = model.configuration.vocabulary_size
    if len(listed) != size:
        raise InputError(f"{words}: {len(listed)} words, {checkpoint} has {size}")
    return model, ReleasedWords(listed, model.start_id, model.end_id, model.pad_id)
