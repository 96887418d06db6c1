"""ExpansionNet v1 and v2: their ablations and self-critical tables."""
