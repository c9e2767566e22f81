"""Instances at AWS EC2."""
