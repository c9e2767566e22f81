"""Instances of AWS EC2."""
