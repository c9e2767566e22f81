"""Answers about leases."""
