"""The tables of `gpuyard catalog` with prices: of clouds, and of what machines are built from."""

from typing import TYPE_CHECKING

from gpuyard.cli.catalog.view import Columns, View

if TYPE_CHECKING:
    from gpuyard.catalog import Price


def _network(price: "Price") -> str:
    from gpuyard.catalog.prices import network_of_instance

    known = network_of_instance(price)
    return known.words if known else "unknown"


_PRICE_COLUMNS: Columns = {
    "id": lambda p: p.id,
    "GPUs": lambda p: f"{p.gpus:g} × {p.gpu or p.gpu_name}",
    "$/h": lambda p: f"{p.usd_per_hour:.2f}",
    "spot $/h": lambda p: f"{p.spot_usd_per_hour:.2f}" if p.spot_usd_per_hour else "",
    "date": lambda p: p.date,
}


def prices() -> View:
    """Prices of cloud instances with GPUs, with the date of each.

    Example: gpuyard catalog prices aws/p4d.24xlarge
    """
    from gpuyard.catalog import prices as table

    return View(
        "Prices in US dollars an hour, on demand, at the date shown",
        table(),
        {**_PRICE_COLUMNS, "network": _network},
        least=("spot $/h", "network"),
        gpu=lambda p: p.gpu,
        cloud=lambda p: p.cloud,
    )


def past_prices() -> View:
    """Prices of earlier days, with the day in the name.

    Example: gpuyard catalog past-prices aws/p3dn.24xlarge@2022-10-11
    """
    from gpuyard.catalog import past_prices as table

    return View(
        "Prices of earlier days in US dollars an hour, on demand",
        table(),
        _PRICE_COLUMNS,
        least=("spot $/h",),
        gpu=lambda p: p.gpu,
        cloud=lambda p: p.cloud,
    )


def instance_networks() -> View:
    """Networks of cloud instances: cards, rate, protocol.

    Example: gpuyard catalog instance-networks aws/p5.48xlarge
    """
    from gpuyard.catalog import price_named
    from gpuyard.catalog.prices import instance_networks as table

    return View(
        "Networks of cloud instances",
        table(),
        {
            "id": lambda n: n.id,
            "network": lambda n: n.words,
            "Gbit/s": lambda n: f"{n.total_gbit_per_second:,g}",
            "protocol": lambda n: n.network_protocol,
            "a flow gets": lambda n: (
                f"{n.per_flow_gbit_per_second:g} Gbit/s" if n.per_flow_gbit_per_second else ""
            ),
            "flows": lambda n: str(n.flows) if n.per_flow_gbit_per_second else "",
            "date": lambda n: n.date,
        },
        least=("date", "flows", "a flow gets", "protocol"),
        gpu=lambda n: price_named(n.id).gpu,
        cloud=lambda n: n.id.partition("/")[0],
    )


def gpu_prices() -> View:
    """GPUs: launch or street price.

    Example: gpuyard catalog gpu-prices rtx-4090
    """
    from gpuyard.catalog.prices import gpu_prices as table

    return View(
        "Prices of GPUs, at launch or on the street",
        table(),
        {
            "id": lambda g: g.id,
            "$": lambda g: f"{g.usd:,.0f}",
            "price of": lambda g: g.basis,
            "date": lambda g: g.date,
        },
        gpu=lambda g: g.id,
    )


def chassis() -> View:
    """Machines without their GPUs: how many go in, price, watts.

    Example: gpuyard catalog chassis server-sxm
    """
    from gpuyard.catalog.prices import chassis as table

    return View(
        "Machines without their GPUs, estimated",
        table(),
        {
            "id": lambda c: c.id,
            "GPUs": lambda c: " or ".join(str(count) for count in c.gpus),
            "form": lambda c: c.form,
            "about $": lambda c: f"{c.usd:,.0f}",
            "W": lambda c: f"{c.watts:,.0f}",
            "date": lambda c: c.date,
        },
        least=("W", "form"),
    )


def tiers() -> View:
    """Laptop, workstation, server, cluster: what they are for and their range of prices.

    Example: gpuyard catalog tiers
    """
    from gpuyard.catalog.tiers import tiers as table
    from gpuyard.units import format_about_usd

    return View(
        "What machines to train on are sold as, at prices that are estimates",
        table(),
        {
            "id": lambda t: t.id,
            "GPUs": lambda t: t.gpus,
            "from": lambda t: format_about_usd(t.least.total_usd),
            "to": lambda t: format_about_usd(t.most.total_usd),
            "for": lambda t: t.purpose,
            "cheapest": lambda t: t.least.words,
            "dearest": lambda t: t.most.words,
            "oldest price": lambda t: t.price_date,
        },
        least=("dearest", "cheapest", "oldest price"),
        more=lambda t: {
            "least_usd": t.least.total_usd,
            "most_usd": t.most.total_usd,
            "oldest_price": t.price_date.isoformat(),
        },
    )


def ports() -> View:
    """Ports: what joining one of eight machines to a network costs.

    Example: gpuyard catalog ports ethernet-10g
    """
    from gpuyard.catalog.prices import ports as table

    return View(
        "Network ports of one of eight machines: card, cable, share of a switch",
        table(),
        {
            "id": lambda p: p.id,
            "about $": lambda p: f"{p.usd:,.0f}",
            "date": lambda p: p.date,
        },
    )


def cloud_data() -> View:
    """Cloud data: what storage and egress cost.

    Example: gpuyard catalog cloud-data aws
    """
    from gpuyard.catalog.prices import cloud_data as table

    return View(
        "Data in clouds, list prices",
        table(),
        {
            "id": lambda c: c.id,
            "storage $/GB/month": lambda c: f"{c.storage_usd_per_gb_month:g}",
            "egress $/GB": lambda c: f"{c.egress_usd_per_gb:g}",
            "free GB per month": lambda c: f"{c.free_egress_gb_per_month:g}",
            "note": lambda c: c.note,
            "date": lambda c: c.date,
        },
        least=("note",),
        cloud=lambda c: c.id,
    )
