"""Acceptance of a delivered cluster: its parts, each node alone, pairs of nodes, and all of them together."""
