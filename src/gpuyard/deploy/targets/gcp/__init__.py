"""Instances of Google Compute Engine."""
