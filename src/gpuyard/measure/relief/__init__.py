"""Un-choke: what each remedy brings on the configuration that is choked, and what it does to the loss."""
