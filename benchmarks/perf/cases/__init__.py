"""The cases that are measured: operators, layers, models, training steps, decoding, reward."""
