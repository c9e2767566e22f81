"""Instances of Lambda Cloud. `lambda` is a word of Python, hence the underscore."""
