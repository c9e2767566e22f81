"""Devices that are closed to a lease's processes: the kernel's control groups, where root can use them."""
