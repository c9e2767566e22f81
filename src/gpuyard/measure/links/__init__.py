"""Measures each link of this machine and compares it with its expected rate."""
