"""Jobs that need GPUs: how they are submitted and run, how policies share GPUs among them, and simulations.

A policy is a pure function of the jobs and the available GPUs. The live queue and the simulator use the same policies.
"""
