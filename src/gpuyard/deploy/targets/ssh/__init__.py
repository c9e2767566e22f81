"""Machines that you already have."""
