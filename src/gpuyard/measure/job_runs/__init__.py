"""Turns the reports of training jobs into measurements."""
