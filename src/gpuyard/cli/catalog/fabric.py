"""The tables of `gpuyard catalog` for the design of networks and storage."""

from gpuyard.cli.catalog.view import View


def switches() -> View:
    """List switches: ports and their rate, rack units, watts, and price.

    Example: gpuyard catalog switches nvidia-qm9700
    """
    from gpuyard.catalog.fabric import switches as table

    return View(
        "Switches, ports in Gbit/s",
        table(),
        {
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
        },
        drop_first=("date", "kg", "U", "uplinks"),
    )


def cables() -> View:
    """List cables: kind, rate, reach, watts, and price.

    Example: gpuyard catalog cables dac-400g
    """
    from gpuyard.catalog.fabric import cables as table

    return View(
        "Cables",
        table(),
        {
            "id": lambda c: c.id,
            "kind": lambda c: c.kind,
            "Gbit/s": lambda c: f"{c.gbit_per_second:g}",
            "m": lambda c: f"{c.lengths_m[0]:g} – {c.reach_m:,g}",
            "W": lambda c: f"{c.watts:g}",
            "about $": lambda c: f"{c.price_usd:,.0f}",
            "$/m": lambda c: f"{c.price_usd_per_m:g}",
            "date": lambda c: c.date,
        },
        drop_first=("W", "$/m"),
    )


def storage() -> View:
    """List storage options for samples and checkpoints: rates and capacity of one unit.

    Example: gpuyard catalog storage cephfs-nvme
    """
    from gpuyard.catalog.fabric import storage_options as table

    return View(
        "Storage, rates and capacity of one unit",
        table(),
        {
            "id": lambda s: s.id,
            "kind": lambda s: s.kind,
            "license": lambda s: s.license,
            "unit": lambda s: s.unit,
            "read GB/s": lambda s: f"{s.read_gb_per_second:g}",
            "write GB/s": lambda s: f"{s.write_gb_per_second:g}",
            "TB": lambda s: f"{s.capacity_tb:,g}",
            "units": lambda s: s.max_units,
            "basis": lambda s: s.basis,
            "date": lambda s: s.date,
        },
        drop_first=("date", "units", "unit", "license"),
    )


def storage_needs() -> View:
    """List the read rates of GPUs in training, according to MLPerf Storage.

    Example: gpuyard catalog storage-needs resnet50-h100
    """
    from gpuyard.catalog.fabric import storage_needs as table

    return View(
        "Read rate of a GPU that never waits",
        table(),
        {
            "id": lambda n: n.id,
            "GPU": lambda n: n.gpu,
            "samples/s": lambda n: f"{n.samples_per_second:,.1f}",
            "record MB": lambda n: f"{n.record_bytes / 1e6:,.3g}",
            "MB/s per GPU": lambda n: f"{n.read_bytes_per_second / 1e6:,.1f}",
            "date": lambda n: n.date,
        },
        drop_first=("record MB",),
        gpu=lambda n: n.gpu,
    )
