"""What captions are worth: the metrics, the commands that score, discrepancy and diversity."""
