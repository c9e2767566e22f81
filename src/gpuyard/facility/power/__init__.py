"""From the wall to a supply: circuits, PDUs, phases, banks and cords."""
