"""Machines on this host."""
