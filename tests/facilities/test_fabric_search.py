"""Switch counts against published reference designs and against brute force."""

from fractions import Fraction
from itertools import product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gpuyard.facilities.fabric.shape import (
    FabricShape,
    PortDemand,
    SwitchPorts,
    find_single_switch,
    find_three_tiers,
    find_two_tiers,
)


def build_demand(nodes: int, ports: int = 1, rails: int = 1, over: float = 1) -> PortDemand:
    return PortDemand(nodes, ports, rails, Fraction(over))


def equal_switches(ports: int) -> SwitchPorts:
    return SwitchPorts(ports, 0, ports, Fraction(1))


def find_shape(demand: PortDemand, ports: SwitchPorts) -> FabricShape:
    shape = (
        find_single_switch(demand, ports)
        or find_two_tiers(demand, ports)
        or find_three_tiers(demand, ports)
    )
    assert shape is not None
    return shape


# NVIDIA DGX SuperPOD reference architecture with DGX H100, table 4: compute fabric of 64-port NDR
# switches (docs.nvidia.com/dgx-superpod/reference-architecture-scalable-infrastructure-h100)
@pytest.mark.parametrize(
    ("nodes", "leaves", "spines", "links"),
    [(31, 8, 4, 256), (63, 16, 8, 512), (95, 24, 16, 768), (127, 32, 16, 1024)],
)
def test_dgx_superpod_h100(nodes: int, leaves: int, spines: int, links: int) -> None:
    shape = find_shape(build_demand(nodes, 8, 8), equal_switches(64))
    assert (shape.leaves, shape.spines, shape.cores) == (leaves, spines, 0)
    assert shape.leaf_spine_links == links


# the same with DGX B200: larger systems, with three tiers from 512 machines up
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
    shape = find_shape(build_demand(nodes, 8, rails), equal_switches(64))
    assert (shape.leaves, shape.spines, shape.cores) == switches
    assert (shape.leaf_spine_links, shape.spine_core_links) == links


def test_rails_of_40_port_switches_by_hand() -> None:
    # 140 machines × 8 ports: each rail has 140 ports on 7 leaves of 20 down and 20 up, and 10 spines with two
    # links from each leaf. With 14 links up from each spine, there are 8 × 10 × 14 / 40 = 28 cores.
    shape = find_shape(build_demand(140, 8, 8), equal_switches(40))
    assert (shape.leaves, shape.spines, shape.cores) == (56, 80, 28)


@pytest.mark.parametrize("ports", [4, 8, 24, 36, 40, 64])
def test_two_tiers_join_up_to_half_the_square_of_the_ports(ports: int) -> None:
    limit = ports**2 // 2
    assert find_shape(build_demand(limit), equal_switches(ports)).tiers == 2
    assert find_two_tiers(build_demand(limit + 1), equal_switches(ports)) is None
    assert find_shape(build_demand(limit + 1), equal_switches(ports)).tiers == 3


@pytest.mark.parametrize("ports", [4, 8, 36])
def test_three_tiers_join_up_to_a_quarter_of_the_cube(ports: int) -> None:
    limit = ports**3 // 4
    assert find_shape(build_demand(limit), equal_switches(ports)).tiers == 3
    assert find_three_tiers(build_demand(limit + 1), equal_switches(ports)) is None


def test_oversubscription_by_hand() -> None:
    # 36 ports at 2:1 are 24 down and 12 up: 48 ports need 2 leaves, and 24 links fit on one spine
    shape = find_shape(build_demand(48, over=2), equal_switches(36))
    assert (shape.leaves, shape.spines, shape.leaf_spine_bundle) == (2, 1, 12)
    # Narval has 33:7 on 40 ports: each of 7 spines has one link to each leaf
    shape = find_shape(build_demand(33 * 20, over=33 / 7), equal_switches(40))
    assert (shape.leaves, shape.uplinks_per_leaf) == (20, 7)


def test_rails_share_a_leaf_only_if_they_fit_completely() -> None:
    # 10 machines × 8 ports: a rail has 10 ports, and two rails use 20 of a leaf's 32, so there are four leaves
    shape = find_shape(build_demand(10, 8, 8), equal_switches(64))
    assert (shape.groups, shape.leaves, shape.spines) == (4, 4, 2)


def test_dedicated_uplinks() -> None:
    # 48 × 1 Gbit/s below and 4 × 100 Gbit/s above: one uplink carries them all
    shape = find_shape(build_demand(480), SwitchPorts(48, 4, 32, Fraction(100)))
    assert (shape.leaves, shape.spines, shape.leaf_spine_links) == (10, 1, 10)


def brute_force_two_tiers(endpoints: int, ports: int, over: int) -> int | None:
    """Try every number of leaves, spines, and links between them."""
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


def brute_force_three_tiers(endpoints: int, ports: int, over: int) -> int | None:
    """Try every number of pods, leaves, spines, planes, cores, and links."""
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
def test_two_tiers_match_brute_force(ports: int, endpoints: int, over: int) -> None:
    shape = find_two_tiers(build_demand(endpoints, over=over), equal_switches(ports))
    assert (shape.switches if shape else None) == brute_force_two_tiers(endpoints, ports, over)


@pytest.mark.parametrize("ports", [3, 4, 5])
@pytest.mark.parametrize("over", [1, 2])
def test_three_tiers_match_brute_force(ports: int, over: int) -> None:
    for endpoints in range(2, 34):
        shape = find_three_tiers(build_demand(endpoints, over=over), equal_switches(ports))
        expected = brute_force_three_tiers(endpoints, ports, over)
        assert (shape.switches if shape else None) == expected, endpoints


@given(st.integers(1, 200), st.integers(4, 48), st.sampled_from([1, 1.5, 2, 3]))
def test_more_machines_never_need_fewer_switches(nodes: int, ports: int, over: float) -> None:
    first = find_single_switch(
        build_demand(nodes, over=over), equal_switches(ports)
    ) or find_two_tiers(build_demand(nodes, over=over), equal_switches(ports))
    more = find_single_switch(
        build_demand(nodes + 1, over=over), equal_switches(ports)
    ) or find_two_tiers(build_demand(nodes + 1, over=over), equal_switches(ports))
    assume(first is not None and more is not None)
    assert first is not None and more is not None
    assert more.switches >= first.switches
