"""Services that machines are rented from: their interface, their pace, and an end to what they cost."""
