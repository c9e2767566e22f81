"""The stack: driver, CUDA, frameworks and containers in versions that fit each other, the same on every machine."""
