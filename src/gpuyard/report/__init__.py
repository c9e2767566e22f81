"""Answers, and how they look on a terminal, to a program and on a page."""
