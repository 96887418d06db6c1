"""Device descriptions, rooflines, and predicted training times of the papers."""
