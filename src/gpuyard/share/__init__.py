"""Leases on the GPUs of one server: who holds which GPU, who waits, and who used them before.

`broker.Broker` has every operation. The owner of the store uses it directly; everyone else calls `service`, which runs
as the owner and learns from the kernel who calls. `client.Client` declares the operations that both can use.
"""
