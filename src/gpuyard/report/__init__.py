"""Answers to commands, and their rendering for a terminal, as JSON, and as an HTML page."""
