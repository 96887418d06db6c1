"""FLOPs and parameters of models in closed form, and v2's Tables VI and VII."""
