"""The cost of renting and owning: pure functions from prices to money over time."""
