"""Does storage starve the GPUs? MLPerf Storage's method: real reads, computing replaced by a sleep."""
