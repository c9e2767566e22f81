"""Readers that turn the output of `nvidia-smi topo`, `nvidia-smi -q -x`, and `lstopo` into machine graphs."""
