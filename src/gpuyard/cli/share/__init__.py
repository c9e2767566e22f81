"""Commands that share the GPUs of a machine: leases, reservations, usage, and notebooks."""
