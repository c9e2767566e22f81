"""Reads what other tools print about links and GPUs, and judges it against the machine's model."""
