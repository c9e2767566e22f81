"""Trains a model to a target accuracy, with checkpoints from which a killed run resumes bit for bit."""
