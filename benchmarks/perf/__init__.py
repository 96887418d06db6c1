"""Measurements of speed, memory and operations: cases, timing, comparison, scaling, roofline."""
