"""Ansible modules, which run on the machines themselves and need only Python."""
