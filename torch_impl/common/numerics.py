"""Constants of the papers' arithmetic."""

EPSILON = 1e-9
"""Added to the sums that Psi divides by (v1 equation 5, v2 equation 4)."""
