"""ExpansionNet v1 and v2: their ablations and rewarded tables."""
