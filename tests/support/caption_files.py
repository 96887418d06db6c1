"""Small files of captions where the commands look for the real ones."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.papers.lstm_readonly.words import SOURCES


def write(folder: Path) -> Path:
    """A folder of real data with a caption an image."""
    texts = ["a dog runs", "the dog and a cat", "dog cat cat dog", "cat: a cat"]
    for sources in SOURCES.values():
        for name, _ in sources:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            images = [
                {"cocoid": i, "split": split, "sentences": [{"raw": text}]}
                for i, (text, (_, split)) in enumerate(
                    (text, source) for source in sources if source[0] == name for text in texts
                )
            ]
            path.write_text(json.dumps({"images": images}))
    return folder
