"""Instances at Google Compute Engine."""
