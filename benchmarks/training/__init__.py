"""How captioners are trained: the configuration, its stages, one stage, and the stage's loop."""
