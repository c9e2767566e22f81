"""The tables of `gpuyard catalog` with prices of clouds and of the parts of machines."""

from typing import TYPE_CHECKING

from gpuyard.cli.catalog.view import Columns, View

if TYPE_CHECKING:
    from gpuyard.catalog import Price


def _describe_network(price: "Price") -> str:
    from gpuyard.catalog.prices import find_instance_network

    network = find_instance_network(price)
    return network.description if network else "unknown"


_PRICE_COLUMNS: Columns = {
    "id": lambda p: p.id,
    "GPUs": lambda p: f"{p.gpus:g} × {p.gpu or p.gpu_name}",
    "$/h": lambda p: f"{p.usd_per_hour:.2f}",
    "spot $/h": lambda p: f"{p.spot_usd_per_hour:.2f}" if p.spot_usd_per_hour else "",
    "date": lambda p: p.date,
}


def prices() -> View:
    """List the prices of cloud instances with GPUs, with the date of each.

    Example: gpuyard catalog prices aws/p4d.24xlarge
    """
    from gpuyard.catalog import prices as table

    return View(
        "On-demand prices in US dollars per hour, at the date shown",
        table(),
        {**_PRICE_COLUMNS, "network": _describe_network},
        drop_first=("spot $/h", "network"),
        gpu=lambda p: p.gpu,
        cloud=lambda p: p.cloud,
    )


def past_prices() -> View:
    """List earlier prices, with the date in the name.

    Example: gpuyard catalog past-prices aws/p3dn.24xlarge@2022-10-11
    """
    from gpuyard.catalog import past_prices as table

    return View(
        "Earlier on-demand prices in US dollars per hour",
        table(),
        _PRICE_COLUMNS,
        drop_first=("spot $/h",),
        gpu=lambda p: p.gpu,
        cloud=lambda p: p.cloud,
    )


def instance_networks() -> View:
    """List the networks of cloud instances: cards, rate, and protocol.

    Example: gpuyard catalog instance-networks aws/p5.48xlarge
    """
    from gpuyard.catalog import find_price
    from gpuyard.catalog.prices import instance_networks as table

    return View(
        "Networks of cloud instances",
        table(),
        {
            "id": lambda n: n.id,
            "network": lambda n: n.description,
            "Gbit/s": lambda n: f"{n.total_gbit_per_second:,g}",
            "protocol": lambda n: n.network_protocol,
            "per flow": lambda n: (
                f"{n.per_flow_gbit_per_second:g} Gbit/s" if n.per_flow_gbit_per_second else ""
            ),
            "flows": lambda n: str(n.flows) if n.per_flow_gbit_per_second else "",
            "date": lambda n: n.date,
        },
        drop_first=("date", "flows", "per flow", "protocol"),
        gpu=lambda n: find_price(n.id).gpu,
        cloud=lambda n: n.id.partition("/")[0],
    )


def gpu_prices() -> View:
    """List the launch or street prices of GPUs, with the range in which a quote is expected.

    Example: gpuyard catalog gpu-prices rtx-4090
    """
    from gpuyard.catalog.prices import gpu_prices as table

    return View(
        "Launch or street prices of GPUs",
        table(),
        {
            "id": lambda g: g.id,
            "$": lambda g: f"{g.usd:,.0f}",
            "range $": lambda g: g.price_range,
            "basis": lambda g: g.basis,
            "date": lambda g: g.date,
        },
        gpu=lambda g: g.id,
    )


def chassis() -> View:
    """List machines without their GPUs: number and form of GPUs, price, its range, and watts.

    Example: gpuyard catalog chassis server-sxm5
    """
    from gpuyard.catalog.prices import chassis as table

    return View(
        "Machines without their GPUs, estimated prices",
        table(),
        {
            "id": lambda c: c.id,
            "GPUs": lambda c: " or ".join(str(count) for count in c.gpus),
            "form": lambda c: " or ".join(c.forms),
            "about $": lambda c: f"{c.usd:,.0f}",
            "range $": lambda c: c.price_range,
            "W": lambda c: f"{c.watts:,.0f}",
            "date": lambda c: c.date,
        },
        drop_first=("W", "form"),
    )


def tiers() -> View:
    """List the tiers laptop, workstation, server, and cluster: their purpose and price range.

    Example: gpuyard catalog tiers
    """
    from gpuyard.catalog.tiers import tiers as table
    from gpuyard.units import format_rough_usd

    return View(
        "Tiers of training machines, estimated prices",
        table(),
        {
            "id": lambda t: t.id,
            "GPUs": lambda t: t.gpus,
            "from": lambda t: format_rough_usd(t.least.total_usd),
            "to": lambda t: format_rough_usd(t.most.total_usd),
            "for": lambda t: t.purpose,
            "cheapest": lambda t: t.least.description,
            "most expensive": lambda t: t.most.description,
            "oldest price": lambda t: t.price_date,
        },
        drop_first=("most expensive", "cheapest", "oldest price"),
        more=lambda t: {
            "min_usd": t.least.total_usd,
            "max_usd": t.most.total_usd,
            "oldest_price": t.price_date.isoformat(),
        },
    )


def ports() -> View:
    """List the price of connecting one of eight machines to a network, by link.

    Example: gpuyard catalog ports ethernet-10g
    """
    from gpuyard.catalog.prices import ports as table

    return View(
        "Network connection of one of eight machines: card, cable, share of a switch",
        table(),
        {
            "id": lambda p: p.id,
            "about $": lambda p: f"{p.usd:,.0f}",
            "date": lambda p: p.date,
        },
    )


def cloud_data() -> View:
    """List the prices of cloud storage and egress.

    Example: gpuyard catalog cloud-data aws
    """
    from gpuyard.catalog.prices import cloud_data as table

    return View(
        "List prices of cloud data",
        table(),
        {
            "id": lambda c: c.id,
            "storage $/GB/month": lambda c: f"{c.storage_usd_per_gb_month:g}",
            "egress $/GB": lambda c: f"{c.egress_usd_per_gb:g}",
            "free GB per month": lambda c: f"{c.free_egress_gb_per_month:g}",
            "note": lambda c: c.note,
            "date": lambda c: c.date,
        },
        drop_first=("note",),
        cloud=lambda c: c.id,
    )
