"""Machines that you have."""
