"""The machine: what this host is made of, and how fast GPUs reach each other inside one box."""

from gpuyard.hardware.host import Host, discover_host
from gpuyard.hardware.inner_ring import InnerRing, inner_ring

__all__ = ["Host", "InnerRing", "discover_host", "inner_ring"]
