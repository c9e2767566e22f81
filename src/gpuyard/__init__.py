"""gpuyard takes a machine-learning team from one GPU to a data centre."""

__version__ = "0.1.0"
