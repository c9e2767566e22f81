"""Predict training of large transformers: model shape × parallel layout × cluster."""
