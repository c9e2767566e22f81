"""Answers about jobs."""
