"""Figures and captions on a paper's page, from records."""
