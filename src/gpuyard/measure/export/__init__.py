"""Measurements as what teams look at: MLflow, Weights & Biases, Prometheus. None of them has to be installed."""
