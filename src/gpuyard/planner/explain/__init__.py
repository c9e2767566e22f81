"""Explain a plan's choice: its reasons and assumptions, what would change it, and why the alternatives lost."""
