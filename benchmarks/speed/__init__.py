"""What is timed: operators, layers, models, training steps, decoding, the reward."""
