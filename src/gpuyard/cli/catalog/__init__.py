"""`gpuyard catalog`: the facts that gpuyard knows, each with its source and date."""

import typer

from gpuyard.cli.catalog.fabric import cables, staged_copies, storage, storage_needs, switches
from gpuyard.cli.catalog.facility import facility_costs, pdus, plugs, servers
from gpuyard.cli.catalog.parts import chassis, cloud_data, gpu_prices, ports
from gpuyard.cli.catalog.rows import Columns, NameArgument, show
from gpuyard.cli.options import JsonOption

app = typer.Typer(
    help="Hardware, what it is built with, models and prices, each with source and date.",
    no_args_is_help=True,
)

_PRICE_COLUMNS: Columns = {
    "id": lambda p: p.id,
    "GPUs": lambda p: f"{p.gpus:g} × {p.gpu or p.gpu_name}",
    "$/h": lambda p: f"{p.usd_per_hour:.2f}",
    "spot $/h": lambda p: f"{p.spot_usd_per_hour:.2f}" if p.spot_usd_per_hour else "",
    "date": lambda p: p.date,
}


@app.command()
def gpus(name: NameArgument = None, *, json_output: JsonOption = False) -> None:
    """GPUs: memory, dense peaks by precision, power, PCIe and NVLink.

    Example: gpuyard catalog gpus a100-sxm4-80gb
    """
    from gpuyard.catalog import gpus as table

    columns: Columns = {
        "id": lambda g: g.id,
        "GB": lambda g: f"{g.memory_gb:g}",
        "GB/s": lambda g: f"{g.memory_bandwidth_gb_per_second:,.0f}",
        "fp32": lambda g: g.fp32_tflops,
        "tf32": lambda g: g.tf32_tflops,
        "fp16": lambda g: g.fp16_tflops,
        "bf16": lambda g: g.bf16_tflops,
        "fp8": lambda g: g.fp8_tflops,
        "W": lambda g: f"{g.board_watts:.0f}",
        "PCIe": lambda g: f"{g.pcie_generation}.0 x{g.pcie_lanes}",
        "NVLink": lambda g: (
            f"{g.nvlink_links} × gen {g.nvlink_generation}" if g.nvlink_links else ""
        ),
        "P2P": lambda g: "yes" if g.pcie_peer_to_peer else "no",
        "date": lambda g: g.date,
    }
    show(table(), name, columns, json_output, "GPUs (TFLOP/s are dense peaks from the datasheets)")


@app.command()
def machines(name: NameArgument = None, *, json_output: JsonOption = False) -> None:
    """Machines: which GPUs, how they hang together, network cards, power.

    Example: gpuyard catalog machines dgx-a100
    """
    from gpuyard.catalog import machines as table

    columns: Columns = {
        "id": lambda m: m.id,
        "GPUs": lambda m: f"{m.gpus} × {m.gpu}",
        "topology": lambda m: m.topology,
        "network": lambda m: f"{m.nics} × {m.nic_link}" if m.nic_link else "",
        "W": lambda m: f"{m.max_watts:,.0f}" if m.max_watts else "",
        "date": lambda m: m.date,
    }
    show(table(), name, columns, json_output, "Machines")


@app.command()
def links(name: NameArgument = None, *, json_output: JsonOption = False) -> None:
    """Links: raw and effective rate in one direction, latency.

    Example: gpuyard catalog links infiniband-edr
    """
    from gpuyard.catalog import links as table

    columns: Columns = {
        "id": lambda x: x.id,
        "raw GB/s": lambda x: f"{x.raw_gb_per_second:g}",
        "effective GB/s": lambda x: f"{x.effective_gb_per_second:g}",
        "latency µs": lambda x: f"{x.latency_us:g}",
        "protocol": lambda x: x.protocol,
        "basis": lambda x: x.basis,
        "date": lambda x: x.date,
    }
    show(table(), name, columns, json_output, "Links, one direction")


@app.command()
def models(name: NameArgument = None, *, json_output: JsonOption = False) -> None:
    """Models: parameters, gradient bytes by layer in backward order, FLOPs and bytes a sample.

    Example: gpuyard catalog models resnet50 --json
    """
    from gpuyard.catalog import models as table
    from gpuyard.units import format_bytes

    columns: Columns = {
        "id": lambda m: m.id,
        "parameters": lambda m: f"{m.parameters:,}",
        "gradients": lambda m: format_bytes(m.gradient_bytes),
        "layers": lambda m: len(m.layers),
        "GFLOP forward": lambda m: f"{m.forward_flops / 1e9:,.2f}",
        "activations": lambda m: format_bytes(m.activation_bytes),
        "input": lambda m: format_bytes(m.input_bytes),
        "one sample is": lambda m: m.sample,
    }
    show(table(), name, columns, json_output, "Models (FLOPs and bytes are for one sample, fp32)")


@app.command()
def prices(name: NameArgument = None, *, json_output: JsonOption = False) -> None:
    """Prices of cloud instances with GPUs, with the date of each.

    Example: gpuyard catalog prices aws/p4d.24xlarge
    """
    from gpuyard.catalog import prices as table

    title = "Prices in US dollars an hour, on demand, at the date shown"
    show(table(), name, _PRICE_COLUMNS, json_output, title)


@app.command()
def past_prices(name: NameArgument = None, *, json_output: JsonOption = False) -> None:
    """Prices of earlier days, with the day in the name.

    Example: gpuyard catalog past-prices aws/p3dn.24xlarge@2022-10-11
    """
    from gpuyard.catalog import past_prices as table

    title = "Prices of earlier days in US dollars an hour, on demand"
    show(table(), name, _PRICE_COLUMNS, json_output, title)


for _table in (
    gpu_prices,
    chassis,
    ports,
    cloud_data,
    servers,
    pdus,
    plugs,
    facility_costs,
    switches,
    cables,
    storage,
    storage_needs,
    staged_copies,
):
    app.command()(_table)
