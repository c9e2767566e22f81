"""Training to an accuracy."""
