"""A user's own Jupyter on a lease: found in their environment, on loopback, and ended when it is idle."""
