"""Collectives over real links: timed by size, checked, and set beside what the link should give."""
