"""The report's sections, each a function of records and of the papers' own numbers."""
