"""Bare-metal servers of imec's Virtual Wall."""
