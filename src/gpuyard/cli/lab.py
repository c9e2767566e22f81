"""`gpuyard lab`: create and remove an emulated cluster on this machine."""

import os
import re
from typing import Annotated

import typer

from gpuyard.cli.options import DryRunOption
from gpuyard.cli.output import JsonOption, show
from gpuyard.errors import UserMistake, quote

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
    from gpuyard.report.answers.lab import lab_answer
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
    show(lab_answer(plan, dry_run=dry_run), json_output=json_output)
    warning = room.overload(plan)
    if warning is not None:
        print_line(warning)


@app.command()
def status(*, name: NameOption = None, json_output: JsonOption = False) -> None:
    """List the labs, their health, and the processes in them.

    Example: gpuyard lab status
    """
    from gpuyard import lab as room
    from gpuyard.report.answers.lab import labs_answer
    from gpuyard.report.terminal import print_line

    _clean_up()
    for message in room.unreadable():
        print_line(message)
    labs = [(state, health) for state, health in room.labs() if name in (None, state.plan.name)]
    if name is not None and not labs:
        room.find(name)  # raises an error with the closest name
    found = [(*lab, room.processes_in(lab[0].namespaces)) for lab in labs]
    show(labs_answer(found), json_output=json_output)
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
