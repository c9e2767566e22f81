"""Jobs on Slurm: a batch script for each, a record of what was submitted, and the state by our own UUID."""
