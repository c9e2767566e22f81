"""`gpuyard lab`: an emulated cluster on this machine."""

import os
import re
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.options import DryRunOption
from gpuyard.cli.output import JsonOption, show
from gpuyard.errors import UserMistake, quoted

if TYPE_CHECKING:
    from gpuyard.lab import Health, LabPlan, LabState
    from gpuyard.report.answer import Table

app = typer.Typer(help="Bring up an emulated cluster on this machine.", no_args_is_help=True)

NameOption = Annotated[str | None, typer.Option(help="Which lab, if there are several.")]


@app.callback()
def lab() -> None:
    """Bring up an emulated cluster on this machine."""


@app.command()
def up(
    *,
    nodes: Annotated[int, typer.Option(help="Number of nodes.")] = 2,
    link: Annotated[str, typer.Option(help="Rate of each node's link, e.g. 1Gbit.")] = "1Gbit",
    link_of: Annotated[
        list[str] | None,
        typer.Option(help="Rate of one node's link, e.g. 3=100Mbit; repeatable."),
    ] = None,
    racks: Annotated[int, typer.Option(help="Racks to spread the nodes over.")] = 1,
    uplink: Annotated[
        str | None, typer.Option(help="Rate from each rack to the others (default: no limit).")
    ] = None,
    latency: Annotated[
        str, typer.Option(help="Latency added between two nodes, e.g. 50us; needs netem.")
    ] = "0 s",
    dilation: Annotated[
        float, typer.Option(help="Run this many times slower, for links faster than this machine.")
    ] = 1.0,
    name: Annotated[str, typer.Option(help="Name of the lab.")] = "lab",
    dry_run: DryRunOption = False,
    json_output: JsonOption = False,
) -> None:
    """Make nodes with a network of their own, joined by links of the rates that you name.

    It stays until `gpuyard lab down`. Needs root.

    Example: gpuyard lab up --nodes 8 --link 1Gbit --link-of 3=100Mbit
    """
    from gpuyard import lab as room
    from gpuyard.report.answer import Answer
    from gpuyard.report.terminal import say

    plan = room.plan_lab(
        nodes,
        link,
        name=name,
        link_of=_links_of(link_of or []),
        racks=racks,
        uplink=uplink,
        dilation=dilation,
        latency=latency,
    )
    if not dry_run:
        _clean_up()
        room.up(plan)
    table = _plan_table(plan, "would be made" if dry_run else "is up")
    show(Answer([table], plan.describe()), json_output=json_output)
    too_much = room.overload(plan)
    if too_much is not None:
        say(too_much)


@app.command()
def status(*, name: NameOption = None, json_output: JsonOption = False) -> None:
    """List the labs, whether they can be used, and what runs in them.

    Example: gpuyard lab status
    """
    from gpuyard import lab as room
    from gpuyard.report.answer import Answer, Part
    from gpuyard.report.terminal import say

    _clean_up()
    for sentence in room.unreadable():
        say(sentence)
    found = [(known, health) for known, health in room.labs() if name in (None, known.plan.name)]
    if name is not None and not found:
        room.find(name)  # says so, with the closest name
    tables: list[Part] = []
    for known, health in found:
        running = len(room.processes_in(known.namespaces))
        words = f"is {health}, {running} process{'' if running == 1 else 'es'} in it"
        tables.append(_plan_table(known.plan, words))
    document = [_status(known, health) for known, health in found]
    show(Answer(tables, document), json_output=json_output)
    if not found and not json_output:
        say("There is no lab. Make one with: gpuyard lab up --nodes 4 --link 1Gbit")


@app.command("exec", context_settings={"ignore_unknown_options": True})
def execute(
    node: Annotated[str, typer.Argument(help="A node's name or number, like node0 or 0.")],
    command: Annotated[list[str], typer.Argument(help="The command, after --.")],
    *,
    name: NameOption = None,
) -> None:
    """Run a command on a node: with its network and host name, on its cores.

    Example: gpuyard lab exec node0 -- ip address
    """
    from gpuyard import lab as room

    _clean_up()
    arguments = room.find(_chosen(name)).node(node).command(command)
    os.execv(arguments[0], arguments)  # noqa: S606  the command is the user's own


@app.command()
def down(
    *,
    name: NameOption = None,
    every: Annotated[bool, typer.Option("--all", help="Remove all labs.")] = False,
) -> None:
    """Remove a lab, and end what still runs in it.

    Example: gpuyard lab down
    """
    from gpuyard import lab as room
    from gpuyard.report.terminal import say

    removed = _clean_up()
    if every:
        names = [known.plan.name for known, _ in room.labs()]
    elif removed and name in (None, *removed) and not room.labs():
        return
    else:
        names = [_chosen(name)]
    for one in names:
        room.down(one)
        say(f"Lab {one!r} is removed.")


def _chosen(name: str | None) -> str:
    from gpuyard import lab as room

    if name is not None:
        return name
    names = [known.plan.name for known, _ in room.labs()]
    if len(names) > 1:
        raise UserMistake(f"there are several labs, {', '.join(names)}: say which with --name")
    return names[0] if names else room.DEFAULT_NAME


def _clean_up() -> list[str]:
    from gpuyard import lab as room
    from gpuyard.report.terminal import say

    removed = room.remove_orphans()
    for name in removed:
        say(f"Lab {name!r} was left behind by a process that died, or lost to a reboot: removed.")
    return removed


def _links_of(texts: list[str]) -> dict[int, str]:
    found = {}
    for text in texts:
        node, separator, rate = text.partition("=")
        if not separator or not re.fullmatch(r"(node)?[0-9]{1,6}", node):
            raise UserMistake(f"{quoted(text)} is not a link of a node; write it like 3=100Mbit")
        found[int(node.removeprefix("node"))] = rate
    return found


def _plan_table(plan: "LabPlan", state: str) -> "Table":
    from gpuyard.report.answer import Column, Table
    from gpuyard.units import format_bit_rate, format_seconds

    facts = [f"lab {plan.name!r} {state}"]
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


def _status(known: "LabState", health: "Health") -> dict[str, object]:
    from gpuyard import lab as room

    return {
        **known.plan.describe(),
        "health": health,
        "made_at": known.made_at,
        "namespaces": list(known.namespaces),
        "processes": room.processes_in(known.namespaces),
    }
