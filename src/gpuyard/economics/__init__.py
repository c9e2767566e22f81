"""What renting and owning cost. Pure: prices in, money over time out."""

from gpuyard.economics.break_even import BreakEven, break_even

__all__ = ["BreakEven", "break_even"]
