"""Measures training speed and the parts of a step in short runs at each worker count and batch size."""
