"""One object a strategy: how gradients are grouped, what their exchange takes, and what it needs."""
