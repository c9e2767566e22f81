"""Jobs that want GPUs: who gets how many, on which machines, and what would happen if.

A policy is a pure function of what jobs want and what there is; the live queue and the simulator ask the same one.
"""
