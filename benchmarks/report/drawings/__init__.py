"""What is drawn and shown of records below a paper's tables, and for its figures."""
