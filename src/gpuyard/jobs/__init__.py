"""Jobs that want GPUs: what is submitted and who runs it, who gets how many GPUs, and what would happen if.

A policy is a pure function of what jobs want and what there is; the live queue and the simulator ask the same one.
"""
