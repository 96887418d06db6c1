"""Training of captioners: the configuration, its stages, one stage, and the stage's loop."""
