"""What GPUs and processes really do, and what of it a lease does not cover."""
