"""The tables of `gpuyard catalog` that the price of a machine is estimated from."""

from gpuyard.cli.catalog.rows import Columns, NameArgument, show
from gpuyard.cli.options import JsonOption


def gpu_prices(name: NameArgument = None, *, json_output: JsonOption = False) -> None:
    """GPUs: launch or street price.

    Example: gpuyard catalog gpu-prices rtx-4090
    """
    from gpuyard.catalog.parts import gpu_prices as table

    columns: Columns = {
        "id": lambda g: g.id,
        "$": lambda g: f"{g.usd:,.0f}",
        "date": lambda g: g.date,
    }
    show(table(), name, columns, json_output, "Prices of GPUs, at launch or on the street")


def chassis(name: NameArgument = None, *, json_output: JsonOption = False) -> None:
    """Machines without their GPUs: how many go in, price, watts.

    Example: gpuyard catalog chassis server-sxm
    """
    from gpuyard.catalog.parts import chassis as table

    columns: Columns = {
        "id": lambda c: c.id,
        "GPUs": lambda c: " or ".join(str(count) for count in c.gpus),
        "form": lambda c: c.form,
        "about $": lambda c: f"{c.usd:,.0f}",
        "W": lambda c: f"{c.watts:,.0f}",
        "date": lambda c: c.date,
    }
    show(table(), name, columns, json_output, "Machines without their GPUs, estimated")


def ports(name: NameArgument = None, *, json_output: JsonOption = False) -> None:
    """Ports: what joining one machine to a network costs, assumed.

    Example: gpuyard catalog ports ethernet-10g
    """
    from gpuyard.catalog.parts import ports as table

    columns: Columns = {
        "id": lambda p: p.id,
        "about $": lambda p: f"{p.usd:,.0f}",
        "date": lambda p: p.date,
    }
    show(table(), name, columns, json_output, "Network ports with card, cable and switch, assumed")


def cloud_data(name: NameArgument = None, *, json_output: JsonOption = False) -> None:
    """What clouds ask for keeping data and for taking it out.

    Example: gpuyard catalog cloud-data aws
    """
    from gpuyard.catalog.prices import cloud_data as table

    columns: Columns = {
        "id": lambda c: c.id,
        "$/GB/month": lambda c: f"{c.storage_usd_per_gb_month:g}",
        "$/GB out": lambda c: f"{c.egress_usd_per_gb:g}",
        "free GB out a month": lambda c: f"{c.free_egress_gb_per_month:g}",
        "note": lambda c: c.note,
        "date": lambda c: c.date,
    }
    show(table(), name, columns, json_output, "Data in clouds, list prices")
