"""Machines as files tell them: what `nvidia-smi topo`, `nvidia-smi -q -x` and `lstopo` print, as graphs."""
