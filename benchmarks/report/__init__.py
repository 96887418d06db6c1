"""The report: a pure function of the records and the papers' own numbers."""
