"""A user's own Jupyter on a lease: it listens only on loopback, and stops when it is idle."""
