"""Terraform: how it is run, and the provider that gpuyard brings."""
