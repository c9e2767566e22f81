"""Engines, which run jobs: one folder per engine, all with the interface in `base`."""
