"""Servers of an OpenStack."""
