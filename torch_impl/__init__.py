"""The fast side: the oracle's ideas under the same file names, batched, on any device."""
