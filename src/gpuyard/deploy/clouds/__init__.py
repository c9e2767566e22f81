"""Clients for the services that provide machines: Lambda Cloud, GPULab, and testbeds reached through jFed."""
