"""Devices as data, what they are predicted to take, and how long the papers' training would be."""
