"""Counts of switches: against every published design that is known, and against brute force."""

from fractions import Fraction
from itertools import product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gpuyard.facility.fabric.shape import (
    FabricShape,
    PortDemand,
    SwitchPorts,
    single,
    three_tiers,
    two_tiers,
)


def demand(nodes: int, ports: int = 1, rails: int = 1, over: float = 1) -> PortDemand:
    return PortDemand(nodes, ports, rails, Fraction(over))


def alike(ports: int) -> SwitchPorts:
    return SwitchPorts(ports, 0, ports, Fraction(1))


def found(asked: PortDemand, ports: SwitchPorts) -> FabricShape:
    shape = single(asked, ports) or two_tiers(asked, ports) or three_tiers(asked, ports)
    assert shape is not None
    return shape


# NVIDIA DGX SuperPOD reference architecture with DGX H100, table 4: compute fabric of 64-port NDR
# switches (docs.nvidia.com/dgx-superpod/reference-architecture-scalable-infrastructure-h100)
@pytest.mark.parametrize(
    ("nodes", "leaves", "spines", "links"),
    [(31, 8, 4, 256), (63, 16, 8, 512), (95, 24, 16, 768), (127, 32, 16, 1024)],
)
def test_dgx_superpod_h100(nodes: int, leaves: int, spines: int, links: int) -> None:
    shape = found(demand(nodes, 8, 8), alike(64))
    assert (shape.leaves, shape.spines, shape.cores) == (leaves, spines, 0)
    assert shape.leaf_spine_links == links


# the same with DGX B200: larger systems, three tiers from 512 machines on
# (docs.nvidia.com/dgx-superpod/reference-architecture-scalable-infrastructure-b200)
@pytest.mark.parametrize(
    ("nodes", "switches", "links"),
    [
        (64, (16, 8, 0), (512, 0)),
        (128, (32, 16, 0), (1024, 0)),
        (256, (64, 32, 0), (2048, 0)),
        (512, (128, 128, 64), (4096, 4096)),
        (1024, (256, 256, 128), (8192, 8192)),
        (2048, (512, 512, 256), (16384, 16384)),
    ],
)
@pytest.mark.parametrize("rails", [1, 8])
def test_dgx_superpod_b200(
    nodes: int, switches: tuple[int, int, int], links: tuple[int, int], rails: int
) -> None:
    shape = found(demand(nodes, 8, rails), alike(64))
    assert (shape.leaves, shape.spines, shape.cores) == switches
    assert (shape.leaf_spine_links, shape.spine_core_links) == links


def test_rails_of_40_port_switches_by_hand() -> None:
    # 140 machines × 8 ports: a rail has 140 ports, 7 leaves of 20 down and 20 up, 10 spines with two
    # links from each leaf; 14 links up of each spine; 8 × 10 × 14 / 40 = 28 cores
    shape = found(demand(140, 8, 8), alike(40))
    assert (shape.leaves, shape.spines, shape.cores) == (56, 80, 28)


@pytest.mark.parametrize("ports", [4, 8, 24, 36, 40, 64])
def test_two_tiers_end_at_half_the_square_of_the_ports(ports: int) -> None:
    limit = ports**2 // 2
    assert found(demand(limit), alike(ports)).tiers == 2
    assert two_tiers(demand(limit + 1), alike(ports)) is None
    assert found(demand(limit + 1), alike(ports)).tiers == 3


@pytest.mark.parametrize("ports", [4, 8, 36])
def test_three_tiers_end_at_a_quarter_of_the_cube(ports: int) -> None:
    limit = ports**3 // 4
    assert found(demand(limit), alike(ports)).tiers == 3
    assert three_tiers(demand(limit + 1), alike(ports)) is None


def test_oversubscription_by_hand() -> None:
    # 36 ports at 2:1 are 24 down and 12 up: 48 ports take 2 leaves, and 24 links fit on one spine
    shape = found(demand(48, over=2), alike(36))
    assert (shape.leaves, shape.spines, shape.leaf_spine_bundle) == (2, 1, 12)
    # Narval's 33:7 on 40 ports: 7 spines take one link of each leaf
    shape = found(demand(33 * 20, over=33 / 7), alike(40))
    assert (shape.leaves, shape.uplinks_per_leaf) == (20, 7)


def test_rails_share_a_leaf_only_whole() -> None:
    # 10 machines × 8 ports: a rail has 10 ports, two rails are 20 of a leaf's 32, four leaves
    shape = found(demand(10, 8, 8), alike(64))
    assert (shape.groups, shape.leaves, shape.spines) == (4, 4, 2)


def test_uplinks_of_their_own() -> None:
    # 48 × 1 Gbit/s below and 4 × 100 Gbit/s above: one uplink carries them all
    shape = found(demand(480), SwitchPorts(48, 4, 32, Fraction(100)))
    assert (shape.leaves, shape.spines, shape.leaf_spine_links) == (10, 1, 10)


def fewest_two(endpoints: int, ports: int, over: int) -> int | None:
    """Every number of leaves, spines and links between two of them."""
    return min(
        (
            leaves + spines
            for leaves, spines, links in product(range(1, ports + 1), repeat=3)
            if -(-endpoints // leaves) + spines * links <= ports
            and leaves * links <= ports
            and spines * links * over >= -(-endpoints // leaves)
        ),
        default=None,
    )


def fewest_three(endpoints: int, ports: int, over: int) -> int | None:
    """Every number of pods, leaves, spines, planes, cores and links."""
    up_to = range(1, ports + 1)
    best: int | None = None
    for pods, leaves, spines, links in product(up_to, repeat=4):
        in_pod = -(-endpoints // pods)
        down = -(-in_pod // leaves)
        if pods == 1 or pods > endpoints or leaves * links >= ports:
            continue
        if down + spines * links > ports or spines * links * over < down:
            continue
        for planes, cores, bundle in product(up_to, repeat=3):
            if spines % planes or pods * planes * bundle > ports:
                continue
            up = cores * bundle
            if leaves * links + up <= ports and spines * up * over >= in_pod:
                total = pods * (leaves + spines) + spines // planes * cores
                best = total if best is None else min(best, total)
    return best


@given(st.integers(2, 8), st.integers(1, 40), st.integers(1, 3))
def test_two_tiers_are_as_few_as_brute_force_finds(ports: int, endpoints: int, over: int) -> None:
    shape = two_tiers(demand(endpoints, over=over), alike(ports))
    assert (shape.switches if shape else None) == fewest_two(endpoints, ports, over)


@pytest.mark.parametrize("ports", [3, 4, 5])
@pytest.mark.parametrize("over", [1, 2])
def test_three_tiers_are_as_few_as_brute_force_finds(ports: int, over: int) -> None:
    for endpoints in range(2, 34):
        shape = three_tiers(demand(endpoints, over=over), alike(ports))
        expected = fewest_three(endpoints, ports, over)
        assert (shape.switches if shape else None) == expected, endpoints


@given(st.integers(1, 200), st.integers(4, 48), st.sampled_from([1, 1.5, 2, 3]))
def test_more_machines_never_take_fewer_switches(nodes: int, ports: int, over: float) -> None:
    first = single(demand(nodes, over=over), alike(ports)) or two_tiers(
        demand(nodes, over=over), alike(ports)
    )
    more = single(demand(nodes + 1, over=over), alike(ports)) or two_tiers(
        demand(nodes + 1, over=over), alike(ports)
    )
    assume(first is not None and more is not None)
    assert first is not None and more is not None
    assert more.switches >= first.switches
