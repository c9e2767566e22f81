"""Servers in an OpenStack cloud."""
