"""How captioners are trained: settings, recipes, the run of a training and its folder."""
