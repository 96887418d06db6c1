"""The test suite; ``strategies`` and ``tolerances`` also serve ``captionbench verify``."""
