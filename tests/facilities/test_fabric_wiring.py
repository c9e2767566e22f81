"""The links of random designs: no switch exceeds its ports, no link is missing, and all bundles are equal."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from gpuyard.catalog.fabric import switches
from gpuyard.errors import UserMistake
from gpuyard.facilities.fabric import FabricDesign, FabricRequest, design_fabric

PLAIN = [switch.id for switch in switches() if not switch.uplink_ports]


@st.composite
def designs(draw: st.DrawFn) -> FabricDesign:
    ports = draw(st.sampled_from([1, 2, 3, 4, 8]))
    rails = draw(st.sampled_from([r for r in (1, 2, 3, 4, 8) if ports % r == 0]))
    switch, spine = draw(
        st.one_of(
            st.sampled_from(PLAIN).map(lambda name: (name, None)),
            st.sampled_from(
                [
                    ("nvidia-sn2201", "mellanox-sn2700"),
                    ("mellanox-sn2010", "mellanox-sn2100"),
                    ("nvidia-sn3420", "mellanox-sn2100"),
                    ("mellanox-sb7800", "mellanox-cs7520"),
                ]
            ),
        )
    )
    request = FabricRequest(
        nodes=draw(st.integers(1, 400)),
        ports_per_node=ports,
        rails=rails,
        switch=switch,
        spine=spine,
        oversubscription=draw(st.sampled_from([1, 1.25, 2, 3, 7])),
    )
    try:
        return design_fabric(request)
    except UserMistake:
        assume(False)
        raise


@given(designs())
def test_no_switch_has_more_links_than_ports(design: FabricDesign) -> None:
    down = Counter(leaf for _, _, leaf in design.wiring.endpoints)
    up: Counter[int] = Counter()
    spines: Counter[int] = Counter()
    cores: Counter[int] = Counter()
    for bundle in design.wiring.iter_leaf_spine():
        up[bundle.lower] += bundle.links
        spines[bundle.upper] += bundle.links
    for bundle in design.wiring.iter_spine_core():
        spines[bundle.lower] += bundle.links
        cores[bundle.upper] += bundle.links
    leaf = design.switch
    for number in range(design.shape.leaves):
        if leaf.uplink_ports:
            assert down[number] <= leaf.ports and up[number] <= leaf.uplink_ports
        else:
            assert down[number] + up[number] <= leaf.ports
    assert max([*spines.values(), *cores.values()], default=0) <= design.spine_switch.ports
    assert design.ports_used == sum((down + up + spines + cores).values()) <= design.ports_total
    assert design.spare_leaf_ports >= 0
    # the design counts the same links
    assert sum(up.values()) == design.cable_counts["leaf_spine"]
    assert sum(cores.values()) == design.cable_counts["spine_core"]
    assert len(spines) == design.shape.spines and len(cores) == design.shape.cores


@given(designs())
def test_every_port_of_every_machine_is_plugged_in_once(design: FabricDesign) -> None:
    plugged = list(design.wiring.endpoints)
    assert len(plugged) == design.request.endpoints == len({(n, p) for n, p, _ in plugged})
    assert all(0 <= leaf < design.shape.leaves for _, _, leaf in plugged)
    sizes = Counter(leaf for _, _, leaf in plugged)
    # parts may differ by one machine, so leaves differ by no more than one machine's ports
    assert max(sizes.values()) - min(sizes.values()) <= 1 + design.request.ports_per_node


@given(designs())
def test_ports_are_assigned_to_leaves_in_machine_order(design: FabricDesign) -> None:
    shape, request = design.shape, design.request
    starts = [part * request.nodes // shape.parts for part in range(shape.parts + 1)]
    expected: dict[tuple[int, int], int] = {}
    for group in range(shape.groups):
        rails = [
            rail for rail in range(request.rails) if rail * shape.groups // request.rails == group
        ]
        group_ports = [
            port for port in range(request.ports_per_node) if port % request.rails in rails
        ]
        for part, (first, last) in enumerate(pairwise(starts)):
            ports = [(node, port) for node in range(first, last) for port in group_ports]
            pod = group * shape.parts + part
            for index, node_port in enumerate(ports):
                within = index * shape.leaves_per_pod // len(ports)
                expected[node_port] = pod * shape.leaves_per_pod + within
    assert {(node, port): leaf for node, port, leaf in design.wiring.endpoints} == expected


@given(designs())
def test_every_leaf_reaches_every_other(design: FabricDesign) -> None:
    parent: dict[tuple[str, int], tuple[str, int]] = {}

    def find_root(switch: tuple[str, int]) -> tuple[str, int]:
        while parent.setdefault(switch, switch) != switch:
            switch = parent[switch]
        return switch

    for bundle in design.wiring.iter_leaf_spine():
        parent[find_root(("leaf", bundle.lower))] = find_root(("spine", bundle.upper))
    for bundle in design.wiring.iter_spine_core():
        parent[find_root(("spine", bundle.lower))] = find_root(("core", bundle.upper))
    assert len({find_root(("leaf", leaf)) for leaf in range(design.shape.leaves)}) == 1


@given(designs())
def test_all_bundles_of_a_tier_are_equal(design: FabricDesign) -> None:
    for bundles in (list(design.wiring.iter_leaf_spine()), list(design.wiring.iter_spine_core())):
        pairs = Counter((bundle.lower, bundle.upper) for bundle in bundles)
        assert set(pairs.values()) <= {1}
        assert len({bundle.links for bundle in bundles}) <= 1
        assert len(set(Counter(bundle.lower for bundle in bundles).values())) <= 1
        assert len(set(Counter(bundle.upper for bundle in bundles).values())) <= 1


@given(designs())
@example(design_fabric(FabricRequest(nodes=2, ports_per_node=8, switch="mikrotik-crs309")))
def test_design_is_no_worse_than_requested(design: FabricDesign) -> None:
    assert 1 <= design.oversubscription <= design.request.oversubscription + 1e-9
    whole = design.request.endpoints * design.switch.port_bytes_per_second
    assert design.bisection_bytes_per_second <= whole / 2 + 1
    assert design.all_reduce_bytes_per_second <= design.ordered_all_reduce_bytes_per_second + 1


def test_core_links_are_as_fast_as_spine_links() -> None:
    # each spine has 7 links of 100 Gbit/s to the cores; machines have 8 ports of 1 Gbit/s
    request = FabricRequest(379, 8, "nvidia-sn2201", oversubscription=1.25, spine="mellanox-sn2700")
    design = design_fabric(request)
    assert (design.shape.tiers, design.shape.uplinks_per_spine) == (3, 7)
    assert design.ordered_all_reduce_bytes_per_second == pytest.approx(8 * 1e9 / 8)
    assert design.all_reduce_bytes_per_second < design.ordered_all_reduce_bytes_per_second


@given(designs())
def test_every_link_has_a_cable(design: FabricDesign) -> None:
    counts: Counter[str] = Counter()
    for run in design.cables:
        counts[f"{run.from_tier}_{run.to_tier}"] += run.count
        assert run.count > 0 and run.length_m > 0
        assert run.kind != "dac" or run.length_m <= 3
    assert {name: counts[name] for name in design.cable_counts} == design.cable_counts


@pytest.mark.parametrize("nodes", [32, 127, 600])
def test_each_leaf_serves_one_rail(nodes: int) -> None:
    design = design_fabric(FabricRequest(nodes, 8, "nvidia-qm9700", rails=8))
    rails_on: dict[int, set[int]] = {}
    for _, port, leaf in design.wiring.endpoints:
        rails_on.setdefault(leaf, set()).add(port % 8)
    assert all(len(rails) == 1 for rails in rails_on.values())


def test_scalable_unit_is_one_hop_on_every_rail() -> None:
    design = design_fabric(FabricRequest(32, 8, "nvidia-qm9700", rails=8))
    for port in range(8):
        assert len({design.wiring.find_leaf(node, port) for node in range(32)}) == 1
