"""The tables of `gpuyard catalog` for the design of rooms."""

from gpuyard.cli.catalog.view import View


def servers() -> View:
    """List servers: rack units, weight, power supplies, and power.

    Example: gpuyard catalog servers dgx-h100
    """
    from gpuyard.catalog.facility import servers as table

    return View(
        "Servers: size, weight, and power",
        table(),
        {
            "id": lambda s: s.id,
            "U": lambda s: s.rack_units,
            "kg": lambda s: f"{s.weight_kg:g}",
            "mm deep": lambda s: f"{s.depth_mm:g}",
            "W": lambda s: f"{s.max_watts:,.0f}" if s.max_watts else "",
            "supplies": lambda s: (
                f"{s.supplies} × {s.supply_watts:,.0f} W, {s.supplies_needed} needed"
            ),
            "inlet": lambda s: s.inlet.upper(),
            "basis": lambda s: s.basis,
            "date": lambda s: s.date,
        },
        drop_first=("date", "basis", "mm deep", "kg"),
    )


def pdus() -> View:
    """List rack PDUs: inlet and outlets.

    Example: gpuyard catalog pdus apc-ap8966
    """
    from gpuyard.catalog.facility import pdus as table

    return View(
        "Rack PDUs",
        table(),
        {
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
        },
        drop_first=("date", "outlets", "others", "U", "kind"),
    )


def plugs() -> View:
    """List plugs and sockets: ratings and matching parts; `gpuyard facility plugs` draws them.

    Example: gpuyard catalog plugs c19
    """
    from gpuyard.catalog.facility import plugs as table

    return View(
        "Plugs and sockets",
        table(),
        {
            "id": lambda p: p.id,
            "name": lambda p: p.name,
            "poles": lambda p: p.poles,
            "V": lambda p: f"{p.volts:g}",
            "A IEC": lambda p: f"{p.amps_iec:g}" if p.amps_iec else "",
            "A North America": lambda p: (
                f"{p.amps_north_america:g}" if p.amps_north_america else ""
            ),
            "fits": lambda p: ", ".join(p.mates),
        },
        drop_first=("name", "poles"),
    )


def facility_costs() -> View:
    """List facility costs: published averages of PUE and colocation rates.

    Example: gpuyard catalog facility-costs colocation-2024
    """
    from gpuyard.catalog.facility import facility_costs as table

    return View(
        "Facility costs",
        table(),
        {
            "id": lambda c: c.id,
            "name": lambda c: c.name,
            "value": lambda c: f"{c.value:g}",
            "unit": lambda c: c.unit,
            "date": lambda c: c.date,
        },
    )


def electricity() -> View:
    """List business electricity prices by country and region.

    Example: gpuyard catalog electricity DE
    """
    from gpuyard.catalog.electricity import electricity_prices

    return View(
        "Electricity prices",
        electricity_prices(),
        {
            "id": lambda e: e.id,
            "place": lambda e: e.name,
            "$/kWh": lambda e: f"{e.usd_per_kwh:g}",
            "customers": lambda e: e.customers,
            "period": lambda e: e.period,
            "date": lambda e: e.date,
        },
        drop_first=("customers",),
    )
