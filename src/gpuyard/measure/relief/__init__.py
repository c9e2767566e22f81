"""Measures how much each remedy speeds up a choked configuration, and how it changes the loss."""
