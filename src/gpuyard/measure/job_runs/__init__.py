"""What jobs report of their own training, as measurements."""
