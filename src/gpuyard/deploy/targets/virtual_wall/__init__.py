"""Bare-metal servers on imec's Virtual Wall."""
