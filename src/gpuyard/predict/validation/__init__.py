"""Predictions against every published table that ships, from its one-GPU figures alone."""

from gpuyard.predict.validation.score import TableScore, Validation, validate

__all__ = ["TableScore", "Validation", "validate"]
