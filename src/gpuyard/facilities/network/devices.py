"""Build the rack devices for switches and storage servers."""

import math

from gpuyard.catalog.fabric import Switch
from gpuyard.catalog.facility import servers
from gpuyard.facilities.device import Kind, RackDevice
from gpuyard.facilities.fabric import FabricDesign
from gpuyard.facilities.fabric.shape import DirectorBoards

TIERS: dict[str, tuple[Kind, Kind, Kind]] = {
    "machines": ("leaf", "spine", "core"),
    "storage": ("storage leaf", "storage spine", "storage core"),
    "management": ("management", "management spine", "management core"),
}
"""The kinds of switches by network, from its hosts up."""
_STORAGE_SERVER = "storage-server"
# assumed if the catalog does not list a value
_WATTS_PER_PORT_GBIT = 0.07
_KG_PER_UNIT = 9.0
_DEPTH_MM = 660.0
_TYPICAL_SHARE = 0.7  # of the peak, for switches and storage servers


def build_switch_devices(network: str, fabric: FabricDesign) -> list[tuple[RackDevice, int]]:
    """Return the switch of each tier, with its count."""
    shape = fabric.shape
    leaf, spine, core = TIERS[network]
    tiers = [
        (leaf, fabric.switch, fabric.boards, shape.leaves),
        (spine, fabric.spine_switch, fabric.spine_boards, shape.spines),
        (core, fabric.spine_switch, fabric.spine_boards, shape.cores),
    ]
    return [
        (_build_switch_device(kind, switch, boards), n) for kind, switch, boards, n in tiers if n
    ]


def _build_switch_device(kind: Kind, switch: Switch, boards: DirectorBoards | None) -> RackDevice:
    units = math.ceil(switch.rack_units) or 1
    gbit = switch.ports * switch.port_gbit_per_second
    watts = switch.max_watts or max(gbit * _WATTS_PER_PORT_GBIT, 40.0)
    estimated = switch.max_watts is None or switch.watts_basis == "estimate"
    supplies = switch.supplies or (2 if watts <= 3000 else 2 * math.ceil(watts / 2500))
    needed = max(supplies // 2, 1)
    name, price = switch.name, switch.price_usd
    if boards is not None:
        name = f"{name} with {boards.leaf_boards} leaf and {boards.spine_boards} spine boards"
        price = None if price is None else price * boards.price_share
    return RackDevice(
        kind=kind,
        name=name,
        rack_units=units,
        depth_mm=_DEPTH_MM,
        weight_kg=switch.weight_kg or _KG_PER_UNIT * units,
        typical_watts=_TYPICAL_SHARE * watts,
        peak_watts=watts,
        supplies=supplies,
        supplies_needed=needed,
        supplies_minimum=needed,
        inlet="c14" if watts / needed <= 1900 else "c20",
        price_usd=price,
        price_date=switch.price_as_of if price else "",
        basis=("watts estimated" if estimated else "watts as listed")
        + ("; no longer sold new" if switch.discontinued else ""),
        part=switch.id,
    )


def build_storage_device() -> RackDevice:
    """Return a typical storage server; its values are estimates."""
    box = servers().get(_STORAGE_SERVER)
    peak = box.max_watts or box.supplies_needed * box.supply_watts
    return RackDevice(
        kind="storage",
        name=box.name,
        rack_units=box.rack_units,
        depth_mm=box.depth_mm,
        weight_kg=box.weight_kg,
        typical_watts=_TYPICAL_SHARE * peak,
        peak_watts=peak,
        supplies=box.supplies,
        supplies_needed=box.supplies_needed,
        supplies_minimum=box.supplies_minimum,
        inlet=box.inlet,
        volts_minimum=box.volts_minimum,
        basis="power, size, and weight estimated",
    )
