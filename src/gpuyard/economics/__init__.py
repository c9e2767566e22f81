"""What renting and owning cost. Pure: prices in, money over time out."""
