"""Workloads: the built-in models and datasets, and the profile of any torch module."""

from gpuyard.workloads.profiles import profile_model

__all__ = ["profile_model"]
