"""How a caller reaches the store: at its own, or through the service that the kernel tells who calls."""
