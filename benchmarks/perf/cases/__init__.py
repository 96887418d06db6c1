"""The benchmark cases: operators, layers, models, training steps, decoding, reward."""
