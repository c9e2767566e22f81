"""Explanations of a configuration's speed, and changes that would help."""
