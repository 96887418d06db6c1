"""The LSTM with a read-only unit: its tables and experiments."""
