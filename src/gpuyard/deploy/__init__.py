"""Build a cluster from a description: Terraform creates the machines, Ansible configures them, and checks verify them."""

from collections.abc import Callable

StatusCallback = Callable[[str], None]
"""Receives a short description of each step as it starts."""
