"""The oracle: every numbered equation of the papers, once, in NumPy, readable beside the paper.

Arrays are single captions and single images, ``(L, d)``, float64, never batched and never padded.
"""
