"""The bill of materials: what to order, how many, at what price where one is known, and its power."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpuyard.catalog.fabric import PRICES_OF
from gpuyard.catalog.facility import plugs
from gpuyard.facility.design import FacilityDesign
from gpuyard.facility.network.cables import NetworkCable
from gpuyard.facility.power.cord_list import cord_counts
from gpuyard.printable import csv_text
from gpuyard.units import format_usd

COLUMNS = (
    "quantity", "part", "id", "unit_price_usd", "price_date", "total_usd", "peak_watts_each", "plugs",
    "length_m", "note",
)  # fmt: skip


@dataclass(frozen=True)
class Item:
    """One line. A price that nobody published is left open, never guessed."""

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


def bill_of_materials(design: FacilityDesign) -> tuple[Item, ...]:
    """Devices, PDUs, racks, cords, network cards and network cables."""
    return (
        *_devices(design),
        *_housing(design),
        *_cords(design),
        *_cards(design),
        *_cables(design.cables),
    )


def _devices(design: FacilityDesign) -> Iterator[Item]:
    for device, count in zip(
        design.packing.devices, map(sum, zip(*design.packing.racks, strict=True)), strict=True
    ):
        yield Item(
            count,
            device.name,
            device.part,
            device.price_usd,
            device.price_date,
            device.peak_watts,
            f"{device.supplies} × {device.inlet.upper()} inlet",
            note=f"{device.kind}; {device.basis}" if device.is_switch else device.basis,
        )


def _housing(design: FacilityDesign) -> Iterator[Item]:
    racks = design.room.floor.racks
    if not design.on_desk:
        rack = design.site.rack
        yield Item(
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
        yield Item(count, model.name, model.id, plugs=inlet, note=note)


def _cords(design: FacilityDesign) -> Iterator[Item]:
    counted = cord_counts(design)
    for kind in sorted(counted, key=lambda k: (k.plug, k.connector, k.length_m)):
        ends = f"{_end(kind.plug)} to {_end(kind.connector)}"
        yield Item(
            counted[kind],
            f"power cord, {kind.amps:g} A",
            plugs=ends,
            length_m=kind.length_m,
        )


def _end(face: str) -> str:
    row = plugs().get(face)
    return face.upper() if row.standard == "IEC 60320" else row.name


def _cards(design: FacilityDesign) -> Iterator[Item]:
    """Ports of hosts. Catalog machines bring theirs to each other, and every host those for management."""
    named = isinstance(design.cluster.machine, str)
    for name, fabric in design.network.fabrics.items():
        if name == "management" or (name == "machines" and named):
            continue
        switch = fabric.switch
        yield Item(
            fabric.request.endpoints,
            f"port of a network card, {switch.port_gbit_per_second:g} Gbit/s {switch.kind}, {name}",
            unit_price_usd=switch.card_price_usd,
            price_date=f"{PRICES_OF}, estimate",
            note="left out where a host brings it",
        )


def _cables(cables: tuple[NetworkCable, ...]) -> Iterator[Item]:
    for cable in cables:
        yield Item(
            cable.count,
            f"{cable.kind}, {cable.use}",
            cable.cable,
            unit_price_usd=cable.price_usd,
            length_m=cable.length_m,
            price_date=cable.price_date,
        )


def known_total(items: tuple[Item, ...]) -> str:
    """What the priced parts cost in total, and how many lines have no price."""
    prices = [item.total_usd for item in items if item.total_usd is not None]
    left = len(items) - len(prices)
    open_ = f"{left} line{'s have' if left != 1 else ' has'} no known price" if left else ""
    if not prices:
        return f"{open_[:1].upper()}{open_[1:]}."
    return f"Total of known prices: {format_usd(sum(prices))}" + (f"; {open_}." if open_ else ".")


def bill_csv(items: tuple[Item, ...]) -> str:
    """For a spreadsheet; an open price is an empty cell."""
    return csv_text(COLUMNS, ([_cell(getattr(item, name)) for name in COLUMNS] for item in items))


def _cell(value: object) -> object:
    return f"{round(value, 2):.10g}" if isinstance(value, float) else value
