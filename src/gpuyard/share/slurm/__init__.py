"""The way from a share to Slurm: its rules as Slurm's configuration, and leases as Slurm's jobs."""
