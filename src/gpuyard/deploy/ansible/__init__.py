"""Ansible: the roles of a cluster's machines, and how they are applied."""
