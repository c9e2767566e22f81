"""The front door: one function per verb, used by notebooks and scripts (`import gpuyard as gy`), and by the command line.

Each function takes text or objects and returns a `Result`.
"""
