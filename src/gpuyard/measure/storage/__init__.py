"""Tests whether storage starves the GPUs, by MLPerf Storage's method: real reads, and a sleep instead of compute."""
