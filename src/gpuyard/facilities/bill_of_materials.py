"""The bill of materials: parts with their quantities, known prices, power, plugs, and lengths."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from gpuyard.catalog.fabric import ESTIMATE_YEAR
from gpuyard.catalog.facility import plugs
from gpuyard.facilities.design import FacilityDesign
from gpuyard.facilities.network.cables import NetworkCable
from gpuyard.printable import format_csv
from gpuyard.units import format_usd

COLUMNS = (
    "quantity", "part", "id", "unit_price_usd", "price_date", "total_usd", "peak_watts_each", "plugs",
    "length_m", "note",
)  # fmt: skip


@dataclass(frozen=True)
class BillItem:
    """One line of the bill; a price that is not published is None."""

    quantity: int
    part: str
    id: str = ""
    unit_price_usd: float | None = None
    price_date: str = ""
    peak_watts_each: float | None = None
    plugs: str = ""
    length_m: float | None = None
    note: str = ""

    @property
    def total_usd(self) -> float | None:
        return None if self.unit_price_usd is None else self.quantity * self.unit_price_usd


def list_bill_items(design: FacilityDesign) -> tuple[BillItem, ...]:
    """List devices, racks, PDUs, power cords, network cards, and network cables."""
    return (
        *_list_devices(design),
        *_list_racks_and_pdus(design),
        *_list_cords(design),
        *_list_cards(design),
        *_list_cables(design.cables),
    )


def _list_devices(design: FacilityDesign) -> Iterator[BillItem]:
    for device, count in zip(
        design.packing.devices, map(sum, zip(*design.packing.racks, strict=True)), strict=True
    ):
        yield BillItem(
            count,
            device.name,
            device.part,
            device.price_usd,
            device.price_date,
            device.peak_watts,
            f"{device.supplies} × {device.inlet.upper()} inlet",
            note=f"{device.kind}; {device.basis}" if device.is_switch else device.basis,
        )


def _list_racks_and_pdus(design: FacilityDesign) -> Iterator[BillItem]:
    racks = design.room.floor.racks
    if not design.on_desk:
        rack = design.site.rack
        yield BillItem(
            racks,
            f"rack, {rack.units} U, for devices {rack.depth * 1000:.0f} mm deep, {rack.weight:.0f} kg",
            unit_price_usd=design.site.rack_price,
            price_date="site file" if design.site.rack_price is not None else "",
        )
    model = design.pdu_choice.model
    if model is not None:
        inlet = plugs().get(model.inlet or "").name
        note = (
            f"outlet counts are an estimate. {model.note}"
            if model.outlets_basis == "estimate"
            else ""
        )
        count = sum(len(power.pdus) for power in design.power)
        yield BillItem(count, model.name, model.id, plugs=inlet, note=note)


def _list_cords(design: FacilityDesign) -> Iterator[BillItem]:
    counts = Counter(cord.kind for cord in design.cords)
    for kind in sorted(counts, key=lambda k: (k.plug, k.connector, k.length_m)):
        ends = f"{_format_plug(kind.plug)} to {_format_plug(kind.connector)}"
        yield BillItem(
            counts[kind],
            f"power cord, {kind.amps:g} A",
            plugs=ends,
            length_m=kind.length_m,
        )


def _format_plug(face: str) -> str:
    row = plugs().get(face)
    return face.upper() if row.standard == "IEC 60320" else row.name


def _list_cards(design: FacilityDesign) -> Iterator[BillItem]:
    """List the network ports of hosts.

    Catalog machines include their ports to each other, and all hosts include those for management.
    """
    named = isinstance(design.cluster.machine, str)
    for name, fabric in design.network.fabrics.items():
        if name == "management" or (name == "machines" and named):
            continue
        switch = fabric.switch
        yield BillItem(
            fabric.request.endpoints,
            f"network card port, {switch.port_gbit_per_second:g} Gbit/s {switch.kind}, {name}",
            unit_price_usd=switch.card_price_usd,
            price_date=f"{ESTIMATE_YEAR}, estimate",
            note="not needed if the host includes it",
        )


def _list_cables(cables: tuple[NetworkCable, ...]) -> Iterator[BillItem]:
    for cable in cables:
        yield BillItem(
            cable.count,
            f"{cable.kind}, {cable.use}",
            cable.cable,
            unit_price_usd=cable.price_usd,
            length_m=cable.length_m,
            price_date=cable.price_date,
        )


def describe_total(items: tuple[BillItem, ...]) -> str:
    """Describe the total of the known prices, and how many lines have none."""
    prices = [item.total_usd for item in items if item.total_usd is not None]
    unpriced = len(items) - len(prices)
    note = (
        f"{unpriced} line{'s have' if unpriced != 1 else ' has'} no known price" if unpriced else ""
    )
    if not prices:
        return f"{note}."
    return f"Total of known prices: {format_usd(sum(prices))}" + (f"; {note}." if note else ".")


def format_bill_csv(items: tuple[BillItem, ...]) -> str:
    """Format the bill for a spreadsheet; an unknown price is an empty cell."""
    return format_csv(
        COLUMNS, ([_format_cell(getattr(item, name)) for name in COLUMNS] for item in items)
    )


def _format_cell(value: object) -> object:
    return f"{round(value, 2):.10g}" if isinstance(value, float) else value
