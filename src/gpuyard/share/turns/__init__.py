"""Whose turn it is: the queue, reservations, and the rules that an admin sets."""
