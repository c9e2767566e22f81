"""Emulated machines on this host."""
