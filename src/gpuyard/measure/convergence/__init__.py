"""Training to an accuracy: epochs with checkpoints that a killed run goes on from, bit for bit."""
