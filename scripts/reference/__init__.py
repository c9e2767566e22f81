"""The reference pages of the documentation, rendered from the code."""
