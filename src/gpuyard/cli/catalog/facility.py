"""The tables of `gpuyard catalog` that rooms are designed with."""

from gpuyard.cli.catalog.rows import Columns, NameArgument, show
from gpuyard.cli.options import JsonOption


def servers(name: NameArgument = None, *, json_output: JsonOption = False) -> None:
    """Servers: rack units, weight, supplies, power.

    Example: gpuyard catalog servers dgx-h100
    """
    from gpuyard.catalog.facility import servers as table

    columns: Columns = {
        "id": lambda s: s.id,
        "U": lambda s: s.rack_units,
        "kg": lambda s: f"{s.weight_kg:g}",
        "mm deep": lambda s: f"{s.depth_mm:g}",
        "W": lambda s: f"{s.max_watts:,.0f}" if s.max_watts else "",
        "supplies": lambda s: f"{s.supplies} × {s.supply_watts:,.0f} W, {s.supplies_needed} needed",
        "inlet": lambda s: s.inlet.upper(),
        "basis": lambda s: s.basis,
        "date": lambda s: s.date,
    }
    show(table(), name, columns, json_output, "Servers as racks and electricians see them")


def pdus(name: NameArgument = None, *, json_output: JsonOption = False) -> None:
    """Rack PDUs: inlet and outlets.

    Example: gpuyard catalog pdus apc-ap8966
    """
    from gpuyard.catalog.facility import pdus as table

    columns: Columns = {
        "id": lambda p: p.id,
        "kind": lambda p: p.kind,
        "U": lambda p: p.rack_units,
        "inlet": lambda p: p.inlet or "",
        "C13": lambda p: p.c13,
        "C19": lambda p: p.c19,
        "C13/C19": lambda p: p.c39,
        "others": lambda p: p.other_outlets,
        "outlets": lambda p: p.outlets_basis,
        "date": lambda p: p.date,
    }
    show(table(), name, columns, json_output, "Rack PDUs")


def plugs(name: NameArgument = None, *, json_output: JsonOption = False) -> None:
    """Plugs and sockets: ratings, and what fits what; `gpuyard facility plugs` draws them.

    Example: gpuyard catalog plugs c19
    """
    from gpuyard.catalog.facility import plugs as table

    columns: Columns = {
        "id": lambda p: p.id,
        "name": lambda p: p.name,
        "poles": lambda p: p.poles,
        "V": lambda p: f"{p.volts:g}",
        "A IEC": lambda p: f"{p.amps_iec:g}" if p.amps_iec else "",
        "A North America": lambda p: f"{p.amps_north_america:g}" if p.amps_north_america else "",
        "fits": lambda p: ", ".join(p.mates),
    }
    show(table(), name, columns, json_output, "Plugs and sockets")


def facility_costs(name: NameArgument = None, *, json_output: JsonOption = False) -> None:
    """Costs of rooms: PUE, colocation rates, electricity, as published averages.

    Example: gpuyard catalog facility-costs colocation-2024
    """
    from gpuyard.catalog.facility import facility_costs as table

    columns: Columns = {
        "id": lambda c: c.id,
        "what": lambda c: c.name,
        "value": lambda c: f"{c.value:g}",
        "unit": lambda c: c.unit,
        "date": lambda c: c.date,
    }
    show(table(), name, columns, json_output, "Costs of rooms")
