"""Jobs of imec's GPULab."""
