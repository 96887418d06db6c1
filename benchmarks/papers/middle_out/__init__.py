"""Middle-Out decoding: its tables and experiments."""
