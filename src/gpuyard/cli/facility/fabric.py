"""`gpuyard facility fabric`: design the network between machines."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.api.inputs import apply_precision, parse_precision
from gpuyard.cli.options import PYTORCHS_DEFAULT
from gpuyard.cli.output import JsonOption, check_output_file, show, show_status
from gpuyard.errors import UserMistake

if TYPE_CHECKING:
    from gpuyard.facilities.fabric import FabricDesign, TypicalFloor
    from gpuyard.report.answer import Answer


def fabric(
    *,
    nodes: Annotated[int | None, typer.Option(min=1, help="Number of machines.")] = None,
    ports_per_node: Annotated[
        int | None, typer.Option(min=1, help="Ports per machine on this network.")
    ] = None,
    switch: Annotated[
        str | None, typer.Option(help="Switch from the catalog.", metavar="ID")
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(help="Port rate; the cheapest Ethernet switch is chosen.", metavar="RATE"),
    ] = None,
    spine: Annotated[
        str | None, typer.Option(help="Switch for the upper tiers, if different.", metavar="ID")
    ] = None,
    rails: Annotated[
        int, typer.Option(min=1, help="Number of rails; port i of all machines stays together.")
    ] = 1,
    oversubscription: Annotated[
        float,
        typer.Option(help="Ratio of the bandwidth below a leaf to that above; 1 is non-blocking."),
    ] = 1.0,
    nodes_per_rack: Annotated[int, typer.Option(min=1, help="Machines per rack.")] = 4,
    racks_per_row: Annotated[
        int | None, typer.Option(min=1, help="Racks per row; by default ten, or a square floor.")
    ] = None,
    storage_ports: Annotated[
        int | None, typer.Option(min=1, help="Ports per machine on a storage network.")
    ] = None,
    storage_switch: Annotated[
        str | None, typer.Option(help="Switch for the storage network.", metavar="ID")
    ] = None,
    workload: Annotated[
        str | None, typer.Option(help="A *.workload.yaml or a model, to propose a network for.")
    ] = None,
    on: Annotated[
        str | None, typer.Option(help="With --workload: cluster to run on.", metavar="CLUSTER")
    ] = None,
    target_efficiency: Annotated[
        str, typer.Option(help="With --workload: scaling efficiency to keep.")
    ] = "90%",
    batch: Annotated[
        int | None, typer.Option(min=1, help="With --workload: batch size per GPU.")
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="With --workload: fp32, tf32, fp16, or bf16.",
            show_default=PYTORCHS_DEFAULT,
        ),
    ] = None,
    svg: Annotated[
        Path | None, typer.Option(help="File for the drawing.", callback=check_output_file)
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Design a network (switches, cables, bandwidth, and price), or propose one for a workload.

    Example: gpuyard facility fabric --nodes 128 --ports-per-node 8 --switch nvidia-qm9700 --rails 8
    """
    from gpuyard.facilities.fabric import FabricRequest, TypicalFloor, design_fabric

    if workload is not None or on is not None:
        if nodes or ports_per_node or switch or spine or rate:
            raise UserMistake(
                "--workload proposes a network; leave out --nodes, --ports-per-node, --switch, --spine, and --rate"
            )
        _propose(workload, on, target_efficiency, batch=batch, precision=precision, svg=svg,
                 racks=(nodes_per_rack, racks_per_row), json_output=json_output)  # fmt: skip
        return
    if nodes is None or ports_per_node is None or (switch is None) == (rate is None):
        raise UserMistake(
            "set --nodes, --ports-per-node, and either --switch or --rate to design a network, "
            "or --workload and --on to get a proposal"
        )
    floor = TypicalFloor.from_node_count(nodes, nodes_per_rack, racks_per_row)
    if switch is not None:
        design = design_fabric(
            FabricRequest(nodes, ports_per_node, switch, rails, oversubscription, spine, floor)
        )
    else:
        design = _find_cheapest(rate or "", nodes, ports_per_node, oversubscription, floor)
    others = _design_other_networks(design, floor, storage_ports, storage_switch)
    from gpuyard.report.answers.facility.fabric import fabric_answer

    _show(fabric_answer(design, others), design, svg, json_output=json_output)


def _find_cheapest(
    rate: str, nodes: int, ports: int, oversubscription: float, floor: "TypicalFloor"
) -> "FabricDesign":
    """Return the cheapest Ethernet fabric; two machines are cabled to each other."""
    from gpuyard.facilities.fabric import HostPorts, find_cheapest_fabric
    from gpuyard.units import parse_rate

    gbit = parse_rate(rate) * 8 / 1e9
    return find_cheapest_fabric(HostPorts(gbit, "ethernet", ports, oversubscription), nodes, floor)


def _design_other_networks(
    design: "FabricDesign",
    floor: "TypicalFloor",
    storage_ports: int | None,
    storage_switch: str | None,
) -> "dict[str, FabricDesign]":
    """Return the management network, and a storage network if its options are set."""
    from gpuyard.facilities.fabric import design_management_network, design_storage_network

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
    from gpuyard.facilities.fabric import TypicalFloor
    from gpuyard.hardware.clusters import read_cluster
    from gpuyard.planner.fabric_choice import choose_fabric
    from gpuyard.units import parse_share
    from gpuyard.workloads import profile_model

    if workload is None or on is None:
        raise UserMistake("a proposal needs both --workload and --on")
    if precision is not None:
        parse_precision(precision)
    spec = read_workload(workload)
    profile = profile_model(spec)
    spec = apply_precision(spec, profile, precision)
    target = parse_share(target_efficiency)
    cluster = read_cluster(on)
    floor = TypicalFloor.from_node_count(cluster.nodes, *racks)
    with show_status("trying the switches in the catalog"):
        choice = choose_fabric(spec, profile, cluster, target, batch=batch, floor=floor)
    from gpuyard.report.answers.facility.fabric import proposal_answer

    _show(proposal_answer(choice), choice.chosen.design, svg, json_output=json_output)


def _show(answer: "Answer", design: "FabricDesign", svg: Path | None, *, json_output: bool) -> None:
    if svg is not None:
        from gpuyard.draw.fabric import draw_fabric_svg
        from gpuyard.files import write_text

        write_text(svg, draw_fabric_svg(design))
    show(answer, json_output=json_output)
    if svg is not None:
        from gpuyard.report.terminal import print_line

        print_line(f"Wrote {svg}.")
