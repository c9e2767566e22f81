"""The path from the wall to a power supply: circuits, PDUs, phases, banks, and cords."""
