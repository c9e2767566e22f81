"""The Slurm engine: each job is a batch script with a record, and is identified by gpuyard's UUID."""
