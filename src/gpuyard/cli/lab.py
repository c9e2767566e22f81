"""`gpuyard lab`: create and remove an emulated cluster on this machine."""

import os
import re
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.options import DryRunOption
from gpuyard.cli.output import JsonOption, show
from gpuyard.errors import UserMistake, quote

if TYPE_CHECKING:
    from gpuyard.lab import Health, LabPlan, LabState
    from gpuyard.report.answer import Table

app = typer.Typer(help="Emulate a cluster on this machine.", no_args_is_help=True)

NameOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Name of the lab, if there are several.")
]


@app.callback()
def lab() -> None:
    """Emulate a cluster on this machine."""


@app.command()
def up(
    *,
    nodes: Annotated[int, typer.Option(help="Number of nodes.")] = 2,
    link: Annotated[
        str, typer.Option(metavar="RATE", help="Rate of each node's link, e.g. 1Gbit.")
    ] = "1Gbit",
    link_of: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NODE=RATE", help="Rate of one node's link, e.g. 3=100Mbit; repeatable."
        ),
    ] = None,
    racks: Annotated[int, typer.Option(help="Number of racks for the nodes.")] = 1,
    uplink: Annotated[
        str | None,
        typer.Option(metavar="RATE", help="Rate from each rack to the others (default: no limit)."),
    ] = None,
    latency: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="Latency added between two nodes, e.g. 50us; needs netem."
        ),
    ] = "0 s",
    dilation: Annotated[
        float, typer.Option(help="Slowdown factor, for links faster than this machine can carry.")
    ] = 1.0,
    name: Annotated[str, typer.Option(metavar="NAME", help="Name of the lab.")] = "lab",
    dry_run: DryRunOption = False,
    json_output: JsonOption = False,
) -> None:
    """Create nodes with their own network and links of the given rates.

    The lab stays until `gpuyard lab down`. This command needs root.

    Example: gpuyard lab up --nodes 8 --link 1Gbit --link-of 3=100Mbit
    """
    from gpuyard import lab as room
    from gpuyard.report.answer import Answer
    from gpuyard.report.terminal import print_line

    plan = room.plan_lab(
        nodes,
        link,
        name=name,
        link_of=_parse_node_links(link_of or []),
        racks=racks,
        uplink=uplink,
        dilation=dilation,
        latency=latency,
    )
    if not dry_run:
        _clean_up()
        room.up(plan)
    table = _plan_table(plan, "would be created" if dry_run else "is up")
    show(Answer([table], plan.describe(), rows="nodes"), json_output=json_output)
    warning = room.overload(plan)
    if warning is not None:
        print_line(warning)


@app.command()
def status(*, name: NameOption = None, json_output: JsonOption = False) -> None:
    """List the labs, their health, and the processes in them.

    Example: gpuyard lab status
    """
    from gpuyard import lab as room
    from gpuyard.report.answer import Answer, Part
    from gpuyard.report.terminal import print_line

    _clean_up()
    for message in room.unreadable():
        print_line(message)
    labs = [(state, health) for state, health in room.labs() if name in (None, state.plan.name)]
    if name is not None and not labs:
        room.find(name)  # raises an error with the closest name
    tables: list[Part] = []
    for state, health in labs:
        processes = len(room.processes_in(state.namespaces))
        condition = f"is {health}, {processes} process{'' if processes == 1 else 'es'} in it"
        tables.append(_plan_table(state.plan, condition))
    document = [_status_document(state, health) for state, health in labs]
    show(Answer(tables, document), json_output=json_output)
    if not labs and not json_output:
        print_line("No lab exists. Create one with: gpuyard lab up --nodes 4 --link 1Gbit")


@app.command("exec", context_settings={"ignore_unknown_options": True})
def execute(
    node: Annotated[str, typer.Argument(help="Name or number of a node, like node0 or 0.")],
    command: Annotated[list[str], typer.Argument(help="Command to run, after --.")],
    *,
    name: NameOption = None,
) -> None:
    """Run a command on a node, with its network and host name, on its cores.

    Example: gpuyard lab exec node0 -- ip address
    """
    from gpuyard import lab as room

    _clean_up()
    arguments = room.find(_choose(name)).node(node).command(command)
    os.execv(arguments[0], arguments)  # noqa: S606  the command is the user's own


@app.command()
def down(
    *,
    name: NameOption = None,
    every: Annotated[bool, typer.Option("--all", help="Remove all labs.")] = False,
) -> None:
    """Stop all processes in a lab and remove it.

    Example: gpuyard lab down
    """
    from gpuyard import lab as room
    from gpuyard.report.terminal import print_line

    removed = _clean_up()
    if every:
        names = [state.plan.name for state, _ in room.labs()]
    elif removed and name in (None, *removed) and not room.labs():
        return
    else:
        names = [_choose(name)]
    for lab_name in names:
        room.down(lab_name)
        print_line(f"Lab {lab_name!r} is removed.")


def _choose(name: str | None) -> str:
    from gpuyard import lab as room

    if name is not None:
        return name
    names = [state.plan.name for state, _ in room.labs()]
    if len(names) > 1:
        raise UserMistake(f"there are several labs: {', '.join(names)}; choose one with --name")
    return names[0] if names else room.DEFAULT_NAME


def _clean_up() -> list[str]:
    from gpuyard import lab as room
    from gpuyard.report.terminal import print_line

    removed = room.remove_orphans()
    for name in removed:
        print_line(f"Removed lab {name!r}: its process died, or a reboot ended it.")
    return removed


def _parse_node_links(texts: list[str]) -> dict[int, str]:
    rates = {}
    for text in texts:
        node, separator, rate = text.partition("=")
        if not separator or not re.fullmatch(r"(node)?[0-9]{1,6}", node):
            raise UserMistake(f"{quote(text)} is not a node's link rate; write it like 3=100Mbit")
        rates[int(node.removeprefix("node"))] = rate
    return rates


def _plan_table(plan: "LabPlan", condition: str) -> "Table":
    from gpuyard.report.answer import Column, Table
    from gpuyard.units import format_bit_rate, format_seconds

    facts = [f"lab {plan.name!r} {condition}"]
    if plan.racks > 1:
        uplink = plan.uplink_bytes_per_second
        rate = f" with uplinks of {format_bit_rate(uplink)}" if uplink else ""
        facts.append(f"{plan.racks} racks{rate}")
    if plan.latency_seconds:
        facts.append(f"{format_seconds(plan.latency_seconds)} latency")
    if plan.dilation > 1:
        facts.append(f"time dilated {plan.dilation:g} times")
    return Table(
        ", ".join(facts),
        ["node", "address", "link", "rack", Column("cores", 1)],
        [
            [
                node.name,
                node.address,
                format_bit_rate(node.rate_bytes_per_second),
                str(node.rack),
                ",".join(map(str, node.cores)),
            ]
            for node in plan.nodes
        ],
    )


def _status_document(state: "LabState", health: "Health") -> dict[str, object]:
    from gpuyard import lab as room

    return {
        **state.plan.describe(),
        "health": health,
        "made_at": state.made_at,
        "namespaces": list(state.namespaces),
        "processes": room.processes_in(state.namespaces),
    }
