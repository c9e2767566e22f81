"""What runs jobs: one folder an engine, all with the interface of `base`."""
