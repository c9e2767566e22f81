"""Commands that measure, keep what was measured, and fit the model to it."""
