"""Modules for Ansible, which run on the machines themselves with nothing but Python."""
