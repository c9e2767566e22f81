"""Racks from the front and from the rear: what sits in which unit, and the PDUs with their cords."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from gpuyard.draw.markup import element, moved, page, path, shorten, text, text_width
from gpuyard.draw.palette import BLUE, FADED, GREEN, GREY, GROUND, INK, ORANGE, PURPLE, TEAL, Paint
from gpuyard.facility.design import FacilityDesign
from gpuyard.facility.power.cord_list import PlacedCord, rack_cords
from gpuyard.facility.racks.floor_plan import PlacedDevice, number_list

_UNIT = 14.0
_WIDTH = 236.0  # of the 19 inches between the posts
_POST = 46.0  # left and right of it, where units are numbered and PDUs hang
_GAP, _MARGIN, _TOP = 46.0, 24.0, 92.0
_STRIP = 15.0
_PAINTS = {"server": GREEN, "leaf": BLUE, "spine": PURPLE, "core": ORANGE}
_FEEDS = {"A": "#2c6cb0", "B": "#c2410c"}
_LEGS = ("#7c4a1d", INK, "#8a94a3")  # brown, black and grey, as phases are marked in IEC 60446


@dataclass(frozen=True)
class _Group:
    """Racks that look the same are drawn once."""

    racks: tuple[int, ...]

    @property
    def title(self) -> str:
        numbers = number_list(rack + 1 for rack in self.racks)
        if len(self.racks) == 1:
            return f"Rack {numbers}"
        return shorten(f"{len(self.racks)} racks: {numbers}", 2 * _WIDTH, 15)


def racks_svg(design: FacilityDesign) -> str:
    """One SVG file: every kind of rack of the design, front and rear."""
    groups = _groups(design)
    units = min(design.room.floor.units, _tallest(design))
    one = 2 * (_WIDTH + 2 * _POST) + _GAP
    per_line = min(len(groups), 2)
    lines = -(-len(groups) // per_line)
    height = _TOP + units * _UNIT + 56
    parts = []
    for index, group in enumerate(groups):
        x = _MARGIN + index % per_line * (one + _GAP)
        y = 58 + index // per_line * height
        parts.append(moved(_pair(design, group, units), x, y))
    width = 2 * _MARGIN + per_line * one + (per_line - 1) * _GAP
    title = f"{design.cluster.name} at {design.site.name}"
    heading = text(shorten(title, width - 2 * _MARGIN, 18), _MARGIN, 36, size=18, bold=True)
    about = f"Rack elevations, front and rear, of {title}: {design.room.floor.racks} racks."
    inside = [heading, "".join(parts)]
    return page(inside, width, 58 + lines * height + _MARGIN / 2, title=title, about=about)


def _tallest(design: FacilityDesign) -> int:
    if not design.on_desk:
        return design.room.floor.units
    return max(p.unit + p.device.rack_units for p in design.room.placed)


def _groups(design: FacilityDesign) -> list[_Group]:
    alike: dict[tuple[tuple[str, int], ...], list[int]] = {}
    for rack in range(design.room.floor.racks):
        look = tuple((p.device.name, p.unit) for p in design.room.in_rack(rack))
        alike.setdefault(look, []).append(rack)
    return [_Group(tuple(racks)) for racks in alike.values()]


def _pair(design: FacilityDesign, group: _Group, units: int) -> str:
    rack = group.racks[0]
    placed = design.room.in_rack(rack)
    watts = sum(p.device.peak_watts for p in placed)
    weight = sum(p.device.weight_kg for p in placed)
    used = sum(p.device.rack_units for p in placed)
    title = group.title if not design.on_desk else "Beside the desk"
    facts = f"{used} U used, {weight:,.0f} kg of devices, {watts / 1000:.1f} kW at peak"
    if design.on_desk:
        facts = f"{weight:,.0f} kg, {watts / 1000:.1f} kW at peak"
    cords = list(rack_cords(design, rack))
    return (
        text(title, 0, 16, size=15, bold=True)
        + text(facts, 0, 36, size=12, fill=FADED)
        + moved(_front(design, placed, units), 0, 60)
        + moved(_rear(design, rack, cords, units), _WIDTH + 2 * _POST + _GAP, 60)
    )


def _frame(label: str, units: int, numbered: bool) -> str:
    height = units * _UNIT
    parts = [
        text(label, (_WIDTH + 2 * _POST) / 2, -6, size=12, fill=FADED, anchor="middle"),
        element("rect", x=-2, y=-2, width=_WIDTH + 2 * _POST + 4, height=height + 4, rx=5,
                fill="#475569"),
        element("rect", x=0, y=0, width=_WIDTH + 2 * _POST, height=height, rx=3, fill="#f7f8fa"),
        element("rect", x=_POST, y=0, width=_WIDTH, height=height, fill=GROUND),
    ]  # fmt: skip
    for unit in range(1, units + 1):
        y = height - unit * _UNIT
        parts.append(element("rect", x=_POST, y=y, width=_WIDTH, height=_UNIT, fill="none",
                             stroke="#eceff2", stroke_width=0.7))  # fmt: skip
        if numbered:
            parts.append(
                text(str(unit), _POST - 7, y + _UNIT - 3.5, size=9, fill=FADED, anchor="end")
            )
    return "".join(parts)


def _front(design: FacilityDesign, placed: Sequence[PlacedDevice], units: int) -> str:
    return _frame("front", units, not design.on_desk) + "".join(_box(p, units) for p in placed)


def _box(placed: PlacedDevice, units: int, indent: float = 10) -> str:
    label = placed.label
    name = placed.device.name.removeprefix("workstation with ").removeprefix("server with ")
    fill, stroke = _paint(placed.device.kind)
    height = placed.device.rack_units * _UNIT
    top = (units - placed.unit + 1) * _UNIT - height
    parts = element("rect", x=_POST + 1, y=top + 0.8, width=_WIDTH - 2, height=height - 1.6, rx=2.5,
                    fill=fill, stroke=stroke, stroke_width=1.2)  # fmt: skip
    size = 11 if height >= 24 else 9.5
    room = _WIDTH - 2 * indent
    if height < 30:
        line = shorten(f"{label}: {name}", room, size)
        return parts + text(line, _POST + indent, top + height / 2 + 3.5, size=size)
    watts = f"{placed.device.rack_units} U, {placed.device.peak_watts / 1000:.1f} kW"
    return (
        parts
        + text(shorten(name, room, size), _POST + indent, top + height / 2 - 2, size=size)
        + text(f"{label}, {watts}", _POST + indent, top + height / 2 + 13, size=10, fill=FADED)
    )


def _paint(kind: str) -> Paint:
    """Networks of storage and management look alike, whatever the tier of a switch."""
    if kind.startswith("storage"):
        return TEAL
    return GREY if kind.startswith("management") else _PAINTS[kind]


def _rear(design: FacilityDesign, rack: int, cords: Sequence[PlacedCord], units: int) -> str:
    placed = design.room.in_rack(rack)
    parts = [_frame("rear", units, False), *(_box(p, units, indent=26) for p in placed)]
    pdus: dict[tuple[str, int], list[PlacedCord]] = {}
    for cord in cords:
        pdus.setdefault((cord.feed, cord.pdu), []).append(cord)
    for (feed, pdu), plugged in pdus.items():
        # A hangs on one side and B on the other; with one feed all are on the same side
        x = _POST - 21 * pdu if feed == "A" else _POST + _WIDTH + 21 * pdu - _STRIP
        parts.append(_pdu(design, (feed, pdu, x), plugged, units))
    return "".join(parts) + _legend(design, units, pdus)


def _pdu(
    design: FacilityDesign, which: tuple[str, int, float], cords: Sequence[PlacedCord], units: int
) -> str:
    feed, _, x = which
    height = units * _UNIT - 8
    colour = _FEEDS[feed]
    pdu = design.pdu_choice.pdus["AB".index(feed)]
    if pdu.model is None:
        top, height = units * _UNIT - 30, 26.0
    else:
        top = 4.0
    parts = [element("rect", x=x, y=top, width=_STRIP, height=height, rx=3, fill=GROUND,
                     stroke=colour, stroke_width=1.6)]  # fmt: skip
    bank_height = height / len(pdu.banks)
    plugged, above = Counter(cord.bank for cord in cords), Counter[int]()
    for cord in cords:
        above[cord.bank] += 1
        share = above[cord.bank] / (plugged[cord.bank] + 1)
        y = top + height - bank_height * (cord.bank - 1 + share)
        target = _supply_y(cord, units)
        inner = _POST + 14 if feed == "A" else _POST + _WIDTH - 14
        edge = x + _STRIP if feed == "A" else x
        bend = (edge + inner) / 2
        bent: list[str | float] = ["M", edge, y, "C", bend, y, bend, target, inner, target]
        parts += [
            path(bent, stroke=colour, stroke_width=1.4, opacity=0.85),
            element("circle", cx=inner, cy=target, r=2.6, fill=colour),
            element("rect", x=x + 3.5, y=y - 3, width=_STRIP - 7, height=6, rx=1,
                    fill=_LEGS[cord.leg]),
        ]  # fmt: skip
    return "".join(parts)


def _supply_y(cord: PlacedCord, units: int) -> float:
    device = cord.device.device
    height = device.rack_units * _UNIT
    bottom = (units - cord.device.unit + 1) * _UNIT
    return bottom - height * (cord.supply - 0.5) / device.supplies


def _legend(
    design: FacilityDesign, units: int, pdus: dict[tuple[str, int], list[PlacedCord]]
) -> str:
    y, x, parts = units * _UNIT + 18, 0.0, []
    for feed in dict.fromkeys(feed for feed, _ in pdus):
        pdu = design.pdu_choice.pdus["AB".index(feed)]
        count = sum(one == feed for one, _ in pdus)
        name = f"feed {feed}: {count} × {pdu.name}" if design.site.feeds == 2 else pdu.name
        parts.append(element("rect", x=0, y=y - 9, width=10, height=10, rx=2, fill=GROUND,
                             stroke=_FEEDS[feed], stroke_width=1.6))  # fmt: skip
        parts.append(text(name, 16, y, size=11))
        y += 17
    if design.pdu_choice.pdus[0].legs == 3:
        delta = design.pdu_choice.pdus[0].circuit.voltage <= 250
        names = ("L1-L2", "L2-L3", "L3-L1") if delta else ("L1", "L2", "L3")
        for leg, name in enumerate(names):
            parts.append(element("rect", x=x, y=y - 8, width=9, height=7, rx=1, fill=_LEGS[leg]))
            parts.append(text(name, x + 14, y, size=11))
            x += 30 + text_width(name, 11)
    return "".join(parts)
