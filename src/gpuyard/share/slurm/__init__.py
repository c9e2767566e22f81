"""The move of a share to Slurm: its rules as Slurm's configuration, and its leases as Slurm jobs."""
