"""Jobs on imec's GPULab."""
