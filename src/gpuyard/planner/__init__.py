"""Search what could be bought or rented, rank it for a goal, and say why. Pure: spec in, value out."""
