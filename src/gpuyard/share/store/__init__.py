"""What is held and by whom: the store of leases, their locks, and every operation on them."""
