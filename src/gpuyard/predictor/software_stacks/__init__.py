"""Measured multi-GPU figures, what they say about a software stack, and so about other numbers of GPUs."""
