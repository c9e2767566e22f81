"""What a job file says to one engine only."""
