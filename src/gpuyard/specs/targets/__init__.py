"""Where a deployment's machines come from, as its file says it."""
