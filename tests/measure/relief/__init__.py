"""Relief."""
