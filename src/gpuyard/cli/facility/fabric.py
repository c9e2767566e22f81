"""`gpuyard facility fabric`: design the network between machines."""

from pathlib import Path
from typing import Annotated

import typer

from gpuyard.choices import Precision
from gpuyard.cli.completion import complete_switches
from gpuyard.cli.options import PYTORCHS_DEFAULT
from gpuyard.cli.output import JsonOption, check_output_file, show_status, show_with_drawing
from gpuyard.errors import UserMistake


def fabric(
    *,
    nodes: Annotated[int | None, typer.Option(min=1, help="Number of machines.")] = None,
    ports_per_node: Annotated[
        int | None, typer.Option(min=1, help="Ports per machine on this network.")
    ] = None,
    switch: Annotated[
        str | None,
        typer.Option(
            help="Switch from the catalog.", metavar="ID", autocompletion=complete_switches
        ),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(help="Port rate; the cheapest Ethernet switch is chosen.", metavar="RATE"),
    ] = None,
    spine: Annotated[
        str | None,
        typer.Option(
            help="Switch for the upper tiers, if different.",
            metavar="ID",
            autocompletion=complete_switches,
        ),
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
        str | None,
        typer.Option(
            help="Switch for the storage network.", metavar="ID", autocompletion=complete_switches
        ),
    ] = None,
    workload: Annotated[
        str | None,
        typer.Option(
            metavar="WORKLOAD", help="A *.workload.yaml or a model, to propose a network for."
        ),
    ] = None,
    on: Annotated[
        str | None, typer.Option(help="With --workload: cluster to run on.", metavar="CLUSTER")
    ] = None,
    target_efficiency: Annotated[
        str, typer.Option(metavar="SHARE", help="With --workload: scaling efficiency to keep.")
    ] = "90%",
    batch: Annotated[
        int | None, typer.Option(min=1, help="With --workload: batch size per GPU.")
    ] = None,
    precision: Annotated[
        Precision | None,
        typer.Option(help="With --workload: precision.", show_default=PYTORCHS_DEFAULT),
    ] = None,
    svg: Annotated[
        Path | None, typer.Option(help="File for the drawing.", callback=check_output_file)
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Design a network (switches, cables, bandwidth, and price), or propose one for a workload.

    Example: gpuyard facility fabric --nodes 128 --ports-per-node 8 --switch nvidia-qm9700 --rails 8
    """
    from gpuyard.api.fabric import fabric as design_fabric
    from gpuyard.api.fabric import propose_fabric

    if workload is not None or on is not None:
        if nodes or ports_per_node or switch or spine or rate:
            raise UserMistake(
                "--workload proposes a network; leave out --nodes, --ports-per-node, --switch, --spine, and --rate"
            )
        if workload is None or on is None:
            raise UserMistake("a proposal needs both --workload and --on")
        with show_status("trying the switches in the catalog"):
            result = propose_fabric(
                workload,
                on=on,
                target_efficiency=target_efficiency,
                batch=batch,
                precision=precision,
                nodes_per_rack=nodes_per_rack,
                racks_per_row=racks_per_row,
            )
    elif nodes is None or ports_per_node is None or (switch is None) == (rate is None):
        raise UserMistake(
            "set --nodes, --ports-per-node, and either --switch or --rate to design a network, "
            "or --workload and --on to get a proposal"
        )
    else:
        result = design_fabric(
            nodes,
            ports_per_node,
            switch=switch,
            rate=rate,
            spine=spine,
            rails=rails,
            oversubscription=oversubscription,
            storage_ports=storage_ports,
            storage_switch=storage_switch,
            nodes_per_rack=nodes_per_rack,
            racks_per_row=racks_per_row,
        )
    show_with_drawing(result, svg, json_output=json_output)
