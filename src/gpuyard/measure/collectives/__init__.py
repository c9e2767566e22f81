"""Times collectives over real links by size, checks their results, and compares them with the model."""
