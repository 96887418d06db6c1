"""How time and memory grow with a size, against the closed form."""
