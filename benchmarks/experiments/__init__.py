"""The papers' experiments: which rows a table has, and how each of them is trained and scored."""
