"""Exports measurements to MLflow, Weights & Biases, and Prometheus."""
