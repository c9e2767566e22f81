"""Training for a few seconds at each worker count and batch size: how fast it goes, and what a step waits for."""
