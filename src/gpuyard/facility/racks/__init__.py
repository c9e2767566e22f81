"""Which devices share a rack, and where everything stands."""
