"""The software stack: NVIDIA driver, CUDA, frameworks, and containers in compatible versions, the same on every machine."""
