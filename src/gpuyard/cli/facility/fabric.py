"""`gpuyard facility fabric`: the network between machines, designed alone."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.options import PYTORCHS_DEFAULT, parse_precision, trained_in_asked
from gpuyard.cli.output import JsonOption, show, working, writable
from gpuyard.errors import UserMistake

if TYPE_CHECKING:
    from gpuyard.facility.fabric import FabricDesign, TypicalFloor
    from gpuyard.report.answer import Answer


def fabric(
    *,
    nodes: Annotated[int | None, typer.Option(min=1, help="Number of machines.")] = None,
    ports_per_node: Annotated[
        int | None, typer.Option(min=1, help="Ports of each machine on this network.")
    ] = None,
    switch: Annotated[
        str | None, typer.Option(help="A switch of the catalog.", metavar="ID")
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(help="Instead of a switch: the cheapest of this rate.", metavar="RATE"),
    ] = None,
    spine: Annotated[
        str | None, typer.Option(help="Another switch for the upper tiers.", metavar="ID")
    ] = None,
    rails: Annotated[
        int, typer.Option(min=1, help="Number of rails: port i of all machines stays together.")
    ] = 1,
    oversubscription: Annotated[
        float, typer.Option(help="Bandwidth below a leaf to that above it; 1 is non-blocking.")
    ] = 1.0,
    nodes_per_rack: Annotated[int, typer.Option(min=1, help="Machines in one rack.")] = 4,
    racks_per_row: Annotated[
        int | None, typer.Option(min=1, help="Racks per row; by default ten, or a square floor.")
    ] = None,
    storage_ports: Annotated[
        int | None, typer.Option(min=1, help="Ports of each machine on a storage network.")
    ] = None,
    storage_switch: Annotated[
        str | None, typer.Option(help="The switch of the storage network.", metavar="ID")
    ] = None,
    workload: Annotated[
        str | None, typer.Option(help="Propose a network for this *.workload.yaml or model.")
    ] = None,
    on: Annotated[
        str | None, typer.Option(help="The cluster that it runs on.", metavar="CLUSTER")
    ] = None,
    target_efficiency: Annotated[
        str, typer.Option(help="With --workload: the scaling efficiency to keep.")
    ] = "90 %",
    batch: Annotated[
        int | None, typer.Option(min=1, help="With --workload: batch size per GPU.")
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="With --workload: fp32, tf32, fp16 or bf16.",
            show_default=PYTORCHS_DEFAULT,
        ),
    ] = None,
    svg: Annotated[
        Path | None, typer.Option(help="Write the drawing to this file.", callback=writable)
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Design a network: switches, cables, bandwidth, price; or propose one for a workload.

    Example: gpuyard facility fabric --nodes 128 --ports-per-node 8 --switch nvidia-qm9700 --rails 8
    """
    from gpuyard.facility.fabric import FabricRequest, TypicalFloor, design_fabric

    if workload is not None or on is not None:
        if nodes or ports_per_node or switch or spine or rate:
            raise UserMistake(
                "with --workload the network is proposed: leave the other options out"
            )
        _propose(workload, on, target_efficiency, batch=batch, precision=precision, svg=svg,
                 racks=(nodes_per_rack, racks_per_row), json_output=json_output)  # fmt: skip
        return
    if nodes is None or ports_per_node is None or (switch is None) == (rate is None):
        raise UserMistake(
            "a network is designed from --nodes, --ports-per-node and one of --switch and --rate, "
            "or proposed from --workload and --on"
        )
    floor = TypicalFloor.of(nodes, nodes_per_rack, racks_per_row)
    if switch is not None:
        design = design_fabric(
            FabricRequest(nodes, ports_per_node, switch, rails, oversubscription, spine, floor)
        )
    else:
        design = _cheapest(rate or "", nodes, ports_per_node, oversubscription, floor)
    others = _other_networks(design, floor, storage_ports, storage_switch)
    from gpuyard.report.answers.facility.fabric import fabric_answer

    _show(fabric_answer(design, others), design, svg, json_output=json_output)


def _cheapest(
    rate: str, nodes: int, ports: int, oversubscription: float, floor: "TypicalFloor"
) -> "FabricDesign":
    """Of Ethernet; two machines are cabled to each other."""
    from gpuyard.facility.fabric import HostPorts, cheapest_fabric
    from gpuyard.units import parse_rate

    gbit = parse_rate(rate) * 8 / 1e9
    return cheapest_fabric(HostPorts(gbit, "ethernet", ports, oversubscription), nodes, floor)


def _other_networks(
    design: "FabricDesign",
    floor: "TypicalFloor",
    storage_ports: int | None,
    storage_switch: str | None,
) -> "dict[str, FabricDesign]":
    """The management network, and a storage network where one is asked for."""
    from gpuyard.facility.fabric import management_network, storage_network

    if (storage_ports is None) != (storage_switch is None):
        raise UserMistake("a storage network needs both --storage-ports and --storage-switch")
    others: dict[str, FabricDesign] = {}
    boxes = sum(design.chassis.values())
    if storage_ports is not None and storage_switch is not None:
        others["storage"] = storage_network(
            design.request.nodes, storage_ports, storage_switch, floor
        )
        boxes += sum(others["storage"].chassis.values())
    others["management"] = management_network(design.request.nodes, boxes, floor)
    return others


def _propose(
    workload: str | None,
    on: str | None,
    target_efficiency: str,
    *,
    batch: int | None,
    precision: str | None,
    racks: tuple[int, int | None],
    svg: Path | None,
    json_output: bool,
) -> None:
    from gpuyard.catalog.specfiles import read_workload
    from gpuyard.facility.fabric import TypicalFloor
    from gpuyard.hardware.clusters import read_cluster
    from gpuyard.planner.fabric_choice import choose_fabric
    from gpuyard.units import parse_share
    from gpuyard.workloads import profile_of

    if workload is None or on is None:
        raise UserMistake("a proposal needs both --workload and --on")
    if precision is not None:
        parse_precision(precision)
    spec = read_workload(workload)
    profile = profile_of(spec)
    spec = trained_in_asked(spec, profile, precision)
    target = parse_share(target_efficiency)
    cluster = read_cluster(on)
    floor = TypicalFloor.of(cluster.nodes, *racks)
    with working("trying the switches of the catalog"):
        choice = choose_fabric(spec, profile, cluster, target, batch=batch, floor=floor)
    from gpuyard.report.answers.facility.fabric import proposal_answer

    _show(proposal_answer(choice), choice.chosen.design, svg, json_output=json_output)


def _show(answer: "Answer", design: "FabricDesign", svg: Path | None, *, json_output: bool) -> None:
    if svg is not None:
        from gpuyard.draw.fabric import fabric_svg
        from gpuyard.files import write_text

        write_text(svg, fabric_svg(design))
    show(answer, json_output=json_output)
    if svg is not None:
        from gpuyard.report.terminal import say

        say(f"Wrote {svg}.")
