"""A job for worker processes that imports little."""

import os
import time

from tqdm import tqdm


def reports(key, path):
    """Write this process's id, and work for ten minutes behind a bar."""
    path.write_text(str(os.getpid()))
    for _ in tqdm(range(600), disable=True):
        time.sleep(1)
