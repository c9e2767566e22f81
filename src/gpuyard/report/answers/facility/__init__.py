"""The answers of `gpuyard facility`."""
