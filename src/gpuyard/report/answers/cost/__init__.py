"""The answers of `gpuyard cost`."""
