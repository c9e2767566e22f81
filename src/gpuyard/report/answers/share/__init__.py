"""Answers about leases, reservations, notebooks, and usage."""
