"""The Slurm client: runs Slurm's command-line programs and parses their output into jobs, nodes, and settings.

`run` starts ranks in an allocation, `share` leases GPUs, and `jobs` submits batch jobs through it.
"""
