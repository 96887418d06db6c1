"""ARNet: its tables and experiments."""
