"""The racks of a room: which devices share a rack, and where everything is."""
