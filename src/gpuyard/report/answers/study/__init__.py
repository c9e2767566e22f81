"""The answer of `gpuyard study`, and its charts."""
