"""Simulate a trace of jobs under a policy on machines that exist only as numbers."""
