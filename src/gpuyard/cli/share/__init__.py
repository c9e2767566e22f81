"""Commands that share the GPUs of a machine: leases, who holds what, reservations, notebooks."""
