"""The sweep of the founding paper on a deployment: what would run, the machines as a place, what was predicted."""
