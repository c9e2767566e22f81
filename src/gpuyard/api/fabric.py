"""Design the network between machines, or propose the cheapest one that keeps a workload's efficiency."""

from pathlib import Path
from typing import TYPE_CHECKING

from gpuyard.api.inputs import read_cluster, read_profiled_workload
from gpuyard.api.result import Result, Row
from gpuyard.draw.fabric import draw_fabric_svg
from gpuyard.errors import UserMistake
from gpuyard.facilities.fabric import (
    FabricDesign,
    FabricRequest,
    HostPorts,
    TypicalFloor,
    design_fabric,
    design_management_network,
    design_storage_network,
    find_cheapest_fabric,
)
from gpuyard.report.answers.facility.fabric import fabric_answer, proposal_answer
from gpuyard.units import parse_rate, parse_share

if TYPE_CHECKING:
    from gpuyard.specs import Cluster, Workload

_NODES_PER_RACK = 4


def fabric(
    nodes: int,
    ports_per_node: int,
    *,
    switch: str | None = None,
    rate: str | None = None,
    spine: str | None = None,
    rails: int = 1,
    oversubscription: float = 1.0,
    nodes_per_rack: int = _NODES_PER_RACK,
    racks_per_row: int | None = None,
    storage_ports: int | None = None,
    storage_switch: str | None = None,
) -> Result[Row]:
    """Design a network of these switches, or of the cheapest Ethernet switches for a port rate like "100 Gbit/s"."""
    if (switch is None) == (rate is None):
        raise UserMistake("a network needs either --switch or --rate")
    floor = TypicalFloor.from_node_count(nodes, nodes_per_rack, racks_per_row)
    if switch is not None:
        request = FabricRequest(
            nodes, ports_per_node, switch, rails, oversubscription, spine, floor
        )
        design = design_fabric(request)
    else:
        ports = HostPorts(
            parse_rate(rate or "") * 8 / 1e9, "ethernet", ports_per_node, oversubscription
        )
        design = find_cheapest_fabric(ports, nodes, floor)  # two machines are cabled to each other
    others = _design_other_networks(design, floor, storage_ports, storage_switch)
    return Result(fabric_answer(design, others), draw=lambda: draw_fabric_svg(design))


def propose_fabric(
    workload: "str | Path | Workload",
    *,
    on: "str | Path | Cluster",
    target_efficiency: str | float = 0.9,
    batch: int | None = None,
    precision: str | None = None,
    nodes_per_rack: int = _NODES_PER_RACK,
    racks_per_row: int | None = None,
) -> Result[Row]:
    """Propose the cheapest network for a cluster on which a workload keeps its scaling efficiency."""
    from gpuyard.planner.fabric_choice import choose_fabric

    spec, profile = read_profiled_workload(workload, precision)
    target = parse_share(target_efficiency)
    cluster = read_cluster(on)
    floor = TypicalFloor.from_node_count(cluster.nodes, nodes_per_rack, racks_per_row)
    choice = choose_fabric(spec, profile, cluster, target, batch=batch, floor=floor)
    return Result(proposal_answer(choice), draw=lambda: draw_fabric_svg(choice.chosen.design))


def _design_other_networks(
    design: FabricDesign,
    floor: TypicalFloor,
    storage_ports: int | None,
    storage_switch: str | None,
) -> dict[str, FabricDesign]:
    """Return the management network, and a storage network if its ports and switch are given."""
    if (storage_ports is None) != (storage_switch is None):
        raise UserMistake("a storage network needs both --storage-ports and --storage-switch")
    others: dict[str, FabricDesign] = {}
    switch_count = sum(design.chassis.values())
    if storage_ports is not None and storage_switch is not None:
        others["storage"] = design_storage_network(
            design.request.nodes, storage_ports, storage_switch, floor
        )
        switch_count += sum(others["storage"].chassis.values())
    others["management"] = design_management_network(design.request.nodes, switch_count, floor)
    return others
