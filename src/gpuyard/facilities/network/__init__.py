"""The networks of a room: their ports, switches, and cables."""
