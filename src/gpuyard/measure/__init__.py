"""Benches that time real training, collectives, links, and storage, and the store of their results."""
