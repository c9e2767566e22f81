"""A designed fabric as people read it."""

from typing import TYPE_CHECKING

from gpuyard.cli.options import console, print_table

if TYPE_CHECKING:
    from gpuyard.facility.fabric import FabricDesign
    from gpuyard.planner.fabric_choice import FabricChoice


def print_fabric(design: "FabricDesign", title: str = "Fabric") -> None:
    """What to buy, what to plug in, and what it gives."""
    from gpuyard.facility.fabric import bill_of
    from gpuyard.units import format_bit_rate, format_byte_rate, format_usd

    rate = format_bit_rate(design.switch.port_bytes_per_second)
    request = design.request
    many = "s" if request.ports_per_node > 1 else ""
    console().print(
        f"{title}: {request.nodes:,} machines × {request.ports_per_node} port{many} of {rate}, "
        f"{design.kind}",
        style="bold",
        highlight=False,
    )
    print_table(
        "Switches",
        ["what", "number", "which"],
        [
            [tier, f"{number:,}", _which(design, tier)]
            for tier, number in design.switches.items()
            if number
        ],
    )
    print_table(
        "Cables",
        ["from", "to", "kind", "length", "number", "about, each"],
        [
            [r.from_tier, r.to_tier, r.kind, f"{r.length_m:g} m", f"{r.count:,}",
             format_usd(r.price_usd)]
            for r in design.cables
        ],
    )  # fmt: skip
    out = console()
    over = design.oversubscription
    blocking = "non-blocking" if over == 1 else f"{over:.3g}:1 oversubscribed"
    out.print(
        f"{blocking}; bisection {format_byte_rate(design.bisection_bytes_per_second)}, up to "
        f"{design.hops} switch hop{'s' if design.hops > 1 else ''}; ports used "
        f"{design.ports_used:,} of {design.ports_total:,}, {design.spare_leaf_ports:,} free for machines",
        highlight=False,
    )
    if request.nodes > 1:
        from gpuyard.planner.fabric_choice import exchange_bytes_per_second

        out.print(
            f"an all-reduce over all machines gets "
            f"{format_byte_rate(exchange_bytes_per_second(design))} a machine, which is what predictions "
            "use",
            highlight=False,
        )
    shape = design.shape
    if shape.tiers > 1:
        above = f", and each spine to each of its cores by {shape.spine_core_bundle}"
        out.print(
            f"each leaf is joined to each of its spines by {shape.leaf_spine_bundle}"
            f"{above if shape.tiers == 3 else ''}",
            highlight=False,
        )
    bill = bill_of(design)
    if bill.total_usd is not None and bill.usd_per_port is not None:
        out.print(
            f"about {format_usd(bill.total_usd)} by estimated prices: switches "
            f"{format_usd(bill.switches_usd or 0)}, cables {format_usd(bill.cables_usd)}, cards "
            f"{format_usd(bill.cards_usd)}; {format_usd(bill.usd_per_port)} a port without cards",
            highlight=False,
        )
    watts = f"{bill.switch_watts:,.0f} W" if bill.switch_watts is not None else "unknown watts"
    many = "" if bill.rack_units == 1 else "s"
    out.print(f"{bill.rack_units:g} rack unit{many}, {watts} at most", highlight=False)


def print_companion(name: str, design: "FabricDesign") -> None:
    """A network beside the fabric, in a line."""
    from gpuyard.facility.fabric import bill_of
    from gpuyard.units import format_bit_rate, format_usd

    boxes = " and ".join(f"{count} × {switch}" for switch, count in design.chassis.items())
    cables = sum(design.cable_counts.values())
    console().print(
        f"{name} network: {boxes} for {design.request.endpoints:,} ports of "
        f"{format_bit_rate(design.switch.port_bytes_per_second)}, {cables:,} cables, about "
        f"{format_usd(bill_of(design).total_usd or 0)}",
        highlight=False,
    )


def _which(design: "FabricDesign", tier: str) -> str:
    if design.boards is not None:
        return f"boards of one {design.switch.id}"
    switch = design.switch if tier == "leaf" else design.spine_switch
    if tier != "leaf" and design.spine_boards is not None:
        boards = design.spine_boards
        return f"{switch.id} with {boards.leaf_boards} leaf and {boards.spine_boards} spine boards"
    return switch.id


def print_choice(choice: "FabricChoice") -> None:
    """What was tried, from the cheapest on, and the verdict."""
    from gpuyard.planner.fabric_choice import describe
    from gpuyard.units import format_share, format_usd

    print_table(
        f"Networks, each the cheapest of its efficiency ({choice.tried} were tried)",
        ["network", "about", "samples/s", "efficiency", "choke", ""],
        [
            [
                describe(c),
                format_usd(c.price_usd),
                f"{c.prediction.samples_per_second:,.1f}",
                format_share(c.efficiency),
                c.prediction.choke,
                "proposed" if c is choice.chosen else "",
            ]
            for c in choice.frontier
        ],
    )
    console().print(choice.verdict, highlight=False)
