"""Rack packing: no rack exceeds its limits, and the number of racks matches brute force."""

import functools

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuyard.facilities.device import RackDevice
from gpuyard.facilities.racks.packing import RackLimits, pack_racks


def build_device(name: str, units: int, kg: float = 10, watts: float = 100) -> RackDevice:
    return RackDevice(
        kind="server",
        name=name,
        rack_units=units,
        depth_mm=700,
        weight_kg=kg,
        typical_watts=watts,
        peak_watts=watts,
        supplies=2,
        supplies_needed=1,
        supplies_minimum=1,
        inlet="c14",
    )


def count_by_brute_force(kinds: list[tuple[RackDevice, int]], limits: RackLimits) -> int:
    """Try every way to fill each rack."""
    devices = [d for d, _ in kinds]

    def fits(counts: tuple[int, ...]) -> bool:
        pairs = list(zip(devices, counts, strict=True))
        return (
            sum(d.rack_units * n for d, n in pairs) <= limits.units
            and sum(d.weight_kg * n for d, n in pairs) <= limits.weight_kg
            and sum(d.peak_watts * n for d, n in pairs) <= limits.watts
        )

    @functools.cache
    def count_racks(remaining: tuple[int, ...]) -> int:
        if not any(remaining):
            return 0
        ways: list[tuple[int, ...]] = [()]
        for n in remaining:
            ways = [(*way, k) for way in ways for k in range(n + 1)]
        return 1 + min(
            count_racks(tuple(a - b for a, b in zip(remaining, way, strict=True)))
            for way in ways
            if any(way) and fits(way)
        )

    return count_racks(tuple(n for _, n in kinds))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 7), st.integers(5, 60), st.integers(100, 900), st.integers(1, 4)),
        min_size=1,
        max_size=3,
    )
)
def test_rack_count_matches_brute_force(sizes: list[tuple[int, int, int, int]]) -> None:
    kinds = [(build_device(f"d{i}", u, kg, w), n) for i, (u, kg, w, n) in enumerate(sizes)]
    limits = RackLimits(units=10, weight_kg=100, watts=1000)
    packed = pack_racks(kinds, limits)
    assert len(packed.racks) == count_by_brute_force(kinds, limits)
    assert packed.min_racks <= len(packed.racks)
    _check(packed.devices, packed.racks, kinds, limits)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 10), st.integers(1, 60)), min_size=1, max_size=5))
def test_no_rack_overflows(sizes: list[tuple[int, int]]) -> None:
    kinds = [(build_device(f"d{i}", u), n) for i, (u, n) in enumerate(sizes)]
    limits = RackLimits(units=42, weight_kg=300, watts=4000, max_by_cords=((kinds[0][0], 7),))
    packed = pack_racks(kinds, limits)
    _check(packed.devices, packed.racks, kinds, limits)
    assert all(rack[packed.devices.index(kinds[0][0])] <= 7 for rack in packed.racks)
    assert packed.min_racks <= len(packed.racks)


def _check(
    devices: tuple[RackDevice, ...],
    racks: tuple[tuple[int, ...], ...],
    kinds: list[tuple[RackDevice, int]],
    limits: RackLimits,
) -> None:
    for k, device in enumerate(devices):
        assert sum(rack[k] for rack in racks) == dict(kinds)[device]
    for rack in racks:
        pairs = list(zip(devices, rack, strict=True))
        assert sum(d.rack_units * n for d, n in pairs) <= limits.units
        assert sum(d.weight_kg * n for d, n in pairs) <= limits.weight_kg + 1e-6
        assert sum(d.peak_watts * n for d, n in pairs) <= limits.watts + 1e-6


def test_search_beats_first_fit() -> None:
    kinds = [(build_device("four", 4), 3), (build_device("three", 3), 6)]
    packed = pack_racks(kinds, RackLimits(10, 1000, 10_000))
    assert sorted(packed.racks) == [(1, 2)] * 3  # first fit in 10 U: 4+4, 4+3+3, 3+3+3, 3
    assert packed.min_racks == 3
