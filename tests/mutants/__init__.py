"""Wrong candidates, each with the property that must catch it: ``python -m tests.mutants``."""
