"""`gpuyard lab`: an emulated cluster on this machine."""

import os
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.options import DryRunOption, JsonOption, console, print_json, print_table
from gpuyard.errors import UserMistake

if TYPE_CHECKING:
    from gpuyard.lab import Health, LabPlan, LabState

app = typer.Typer(help="Bring up an emulated cluster on this machine.", no_args_is_help=True)

NameOption = Annotated[
    str | None, typer.Option(help="Which lab; not needed where there is only one.")
]


@app.callback()
def lab() -> None:
    """Bring up an emulated cluster on this machine."""


@app.command()
def up(
    *,
    nodes: Annotated[int, typer.Option(help="How many nodes.")] = 2,
    link: Annotated[str, typer.Option(help="Rate of each node's link, like 1Gbit.")] = "1Gbit",
    link_of: Annotated[
        list[str] | None,
        typer.Option(help="Another rate for one node, like 3=100Mbit; may be given again."),
    ] = None,
    racks: Annotated[int, typer.Option(help="Racks that the nodes are spread over.")] = 1,
    uplink: Annotated[
        str | None, typer.Option(help="Rate from each rack to the others; else it never limits.")
    ] = None,
    latency: Annotated[
        str, typer.Option(help="Added to every way between two nodes, like 50us; needs netem.")
    ] = "0 s",
    dilation: Annotated[
        float, typer.Option(help="Run so many times slower, for links faster than this machine.")
    ] = 1.0,
    name: Annotated[str, typer.Option(help="What to call it.")] = "lab",
    dry_run: DryRunOption = False,
    json_output: JsonOption = False,
) -> None:
    """Make nodes with a network of their own, joined by links of the rates that you name.

    It stays until `gpuyard lab down`. Needs root.

    Example: gpuyard lab up --nodes 8 --link 1Gbit --link-of 3=100Mbit
    """
    from gpuyard import lab as room

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
    if json_output:
        print_json(plan.describe())
    else:
        _print_plan(plan, "would be made" if dry_run else "is up")
    too_much = room.overload(plan)
    if too_much is not None:
        _say(too_much)


@app.command()
def status(*, name: NameOption = None, json_output: JsonOption = False) -> None:
    """Say which labs there are, whether they can be used, and what runs in them.

    Example: gpuyard lab status
    """
    from gpuyard import lab as room

    _clean_up()
    for sentence in room.unreadable():
        _say(sentence)
    found = [(known, health) for known, health in room.labs() if name in (None, known.plan.name)]
    if name is not None and not found:
        room.find(name)  # says so, with the closest name
    if json_output:
        print_json([_status(known, health) for known, health in found])
        return
    if not found:
        _say("There is no lab. Make one with: gpuyard lab up --nodes 4 --link 1Gbit")
        return
    for known, health in found:
        running = len(room.processes_in(known.namespaces))
        _print_plan(
            known.plan, f"is {health}, {running} process{'' if running == 1 else 'es'} in it"
        )


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
    every: Annotated[bool, typer.Option("--all", help="All labs.")] = False,
) -> None:
    """Remove a lab, and end what still runs in it.

    Example: gpuyard lab down
    """
    from gpuyard import lab as room

    removed = _clean_up()
    if every:
        names = [known.plan.name for known, _ in room.labs()]
    elif removed and name in (None, *removed) and not room.labs():
        return
    else:
        names = [_chosen(name)]
    for one in names:
        room.down(one)
        _say(f"Lab {one!r} is removed.")


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

    removed = room.remove_orphans()
    for name in removed:
        _say(f"Lab {name!r} was left behind by a process that died, or lost to a reboot: removed.")
    return removed


def _links_of(texts: list[str]) -> dict[int, str]:
    found = {}
    for text in texts:
        node, separator, rate = text.partition("=")
        if not separator or not node.removeprefix("node").isdigit():
            raise UserMistake(f"{text!r} is not a link of a node; write it like 3=100Mbit")
        found[int(node.removeprefix("node"))] = rate
    return found


def _say(text: str) -> None:
    console(stderr=True).print(text, markup=False, highlight=False, soft_wrap=True)


def _print_plan(plan: "LabPlan", state: str) -> None:
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
    print_table(
        ", ".join(facts),
        ["node", "address", "link", "rack", "cores"],
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
