"""``captionbench scenes``: generated scenes as picture files, to try own data and pixels with."""

from __future__ import annotations

CAPTIONS = "captions.csv"
