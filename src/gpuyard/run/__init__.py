"""Processes in places: here, on a lab's nodes, on hosts over ssh, in a Slurm allocation."""
