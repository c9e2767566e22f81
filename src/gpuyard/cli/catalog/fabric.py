"""The tables of `gpuyard catalog` that networks and storage are designed with."""

from gpuyard.cli.catalog.rows import Columns, NameArgument, show
from gpuyard.cli.options import JsonOption


def switches(name: NameArgument = None, *, json_output: JsonOption = False) -> None:
    """Switches: ports and their rate, rack units, watts, price.

    Example: gpuyard catalog switches nvidia-qm9700
    """
    from gpuyard.catalog.fabric import switches as table

    columns: Columns = {
        "id": lambda s: s.id,
        "ports": lambda s: f"{s.ports} × {s.port_gbit_per_second:g}",
        "uplinks": lambda s: (
            f"{s.uplink_ports} × {s.uplink_gbit_per_second:g}" if s.uplink_ports else ""
        ),
        "link": lambda s: s.link,
        "U": lambda s: f"{s.rack_units:g}",
        "W": lambda s: f"{s.max_watts:,.0f}" if s.max_watts else "",
        "kg": lambda s: f"{s.weight_kg:g}" if s.weight_kg else "",
        "about $": lambda s: f"{s.price_usd:,.0f}" if s.price_usd else "",
        "date": lambda s: s.date,
    }
    show(table(), name, columns, json_output, "Switches, ports in Gbit/s")


def cables(name: NameArgument = None, *, json_output: JsonOption = False) -> None:
    """Cables: kind, rate, reach, watts, price.

    Example: gpuyard catalog cables dac-400g
    """
    from gpuyard.catalog.fabric import cables as table

    columns: Columns = {
        "id": lambda c: c.id,
        "kind": lambda c: c.kind,
        "Gbit/s": lambda c: f"{c.gbit_per_second:g}",
        "m": lambda c: f"{c.lengths_m[0]:g} – {c.reach_m:,g}",
        "W": lambda c: f"{c.watts:g}",
        "about $": lambda c: f"{c.price_usd:,.0f}",
        "$ a m": lambda c: f"{c.price_usd_per_m:g}",
        "date": lambda c: c.date,
    }
    show(table(), name, columns, json_output, "Cables")


def storage(name: NameArgument = None, *, json_output: JsonOption = False) -> None:
    """Ways to keep samples and checkpoints: rates and capacity of one unit.

    Example: gpuyard catalog storage cephfs-nvme
    """
    from gpuyard.catalog.storage import storage_options as table

    columns: Columns = {
        "id": lambda s: s.id,
        "kind": lambda s: s.kind,
        "licence": lambda s: s.licence,
        "unit": lambda s: s.unit,
        "read GB/s": lambda s: f"{s.read_gb_per_second:g}",
        "write GB/s": lambda s: f"{s.write_gb_per_second:g}",
        "TB": lambda s: f"{s.capacity_tb:,g}",
        "units": lambda s: s.most_units,
        "basis": lambda s: s.basis,
        "date": lambda s: s.date,
    }
    show(table(), name, columns, json_output, "Storage, rates and capacity of one unit")


def staged_copies(name: NameArgument = None, *, json_output: JsonOption = False) -> None:
    """What GPUs without peer access reach of their slots, as published.

    Example: gpuyard catalog staged-copies rtx-4090-nccl-814
    """
    from gpuyard.catalog.hardware import staged_copies as table
    from gpuyard.units import format_share

    columns: Columns = {
        "id": lambda c: c.id,
        "GPUs": lambda c: f"{c.gpus} × {c.gpu}",
        "slot": lambda c: c.link,
        "one way": lambda c: f"{c.one_way_gb_per_second:g} ({format_share(c.one_way_share)})",
        "both ways": lambda c: (
            f"{c.both_ways_gb_per_second:g} ({format_share(c.both_ways_share)})"
            if c.both_ways_share
            else ""
        ),
        "peer": lambda c: c.peer_gb_per_second,
        "date": lambda c: c.date,
    }
    title = "Copies between two GPUs through host memory, GB/s (of the slot, of each direction)"
    show(table(), name, columns, json_output, title)


def storage_needs(name: NameArgument = None, *, json_output: JsonOption = False) -> None:
    """What a GPU reads in training, as MLPerf Storage has it.

    Example: gpuyard catalog storage-needs resnet50-h100
    """
    from gpuyard.catalog.storage import storage_needs as table

    columns: Columns = {
        "id": lambda n: n.id,
        "GPU": lambda n: n.gpu,
        "samples/s": lambda n: f"{n.samples_per_second:,.1f}",
        "record MB": lambda n: f"{n.record_bytes / 1e6:,.3g}",
        "MB/s a GPU": lambda n: f"{n.read_bytes_per_second / 1e6:,.1f}",
        "date": lambda n: n.date,
    }
    show(table(), name, columns, json_output, "What one GPU reads while it never waits")
