"""Leases on the GPUs of one server: who holds which, who waits, who did; nobody can be booked on another's.

`broker.Broker` has every operation. It is used directly by whoever owns the store, and by everybody else through
`service`, which runs as the store's owner and is told by the kernel who calls.
"""
