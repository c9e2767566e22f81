"""Jobs on a real Slurm: four nodes with four GPUs each, all of them on this machine."""
