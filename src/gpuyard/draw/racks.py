"""Draws rack elevations, front and rear: devices by rack unit, and PDUs with their power cords."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from gpuyard.draw.markup import element, path, render_drawing, shorten, text, text_width, translate
from gpuyard.draw.palette import (
    BACKGROUND,
    BLUE,
    GRAY,
    GREEN,
    INK,
    MUTED,
    ORANGE,
    PURPLE,
    TEAL,
    Paint,
)
from gpuyard.facilities.design import FacilityDesign
from gpuyard.facilities.power.cord_list import PlacedCord
from gpuyard.facilities.racks.floor_plan import PlacedDevice, format_ranges

_UNIT = 14.0
_WIDTH = 236.0  # width of the 19 inches between the posts
_POST = 46.0  # width of the space on each side for unit numbers and PDUs
_OUTER = _WIDTH + 2 * _POST
_GAP, _MARGIN, _TOP = 46.0, 24.0, 92.0
_BOLD_SIZE = 18 * 1.15  # bold letters of 18 are about as wide as plain ones of this size
_PDU, _PDU_PITCH = 15.0, 21.0
_PAINTS = {"server": GREEN, "leaf": BLUE, "spine": PURPLE, "core": ORANGE}
_FEEDS = {"A": BLUE[1], "B": "#c2410c"}
_LEGS = ("#7c4a1d", INK, "#8a94a3")  # brown, black, and gray: the phase colors of IEC 60446
CordsByPdu = dict[tuple[str, int], list[PlacedCord]]
"""The cords of each PDU, keyed by its feed and number."""


def draw_racks_svg(design: FacilityDesign) -> str:
    """Draw every kind of rack in the design; identical racks are drawn once."""
    identical: dict[tuple[tuple[str, int], ...], list[int]] = {}
    for rack in range(design.room.floor.racks):
        look = tuple((p.device.name, p.unit) for p in design.room.get_rack(rack))
        identical.setdefault(look, []).append(rack)
    elevation = _Elevation(design, min(design.room.floor.units, _count_units(design)))
    rack_width = 2 * _OUTER + _GAP
    per_line = min(len(identical), 2)
    height = _TOP + elevation.height + 56
    drawn = [
        translate(
            element("g", elevation.draw_both_sides(racks), data_rack=str(racks[0] + 1)),
            _MARGIN + index % per_line * (rack_width + _GAP),
            58 + index // per_line * height,
        )
        for index, racks in enumerate(identical.values())
    ]
    width = 2 * _MARGIN + per_line * rack_width + (per_line - 1) * _GAP
    lines = -(-len(identical) // per_line)
    title = f"{design.cluster.name} at {design.site.name}"
    width = max(width, min(2 * width, 2 * _MARGIN + text_width(title, _BOLD_SIZE)))
    shown = shorten(title, width - 2 * _MARGIN, _BOLD_SIZE)
    heading = text(shown, _MARGIN, 36, size=18, bold=True)
    about = f"Rack elevations, front and rear, of {title}: {design.room.floor.racks} racks."
    parts = [heading, "".join(drawn)]
    return render_drawing(parts, width, 58 + lines * height + _MARGIN / 2, title=title, about=about)


def _count_units(design: FacilityDesign) -> int:
    if not design.on_desk:
        return design.room.floor.units
    return max(p.unit + p.device.rack_units for p in design.room.placed)


@dataclass(frozen=True)
class _Elevation:
    """Draws the racks of one design, each `units` rack units high."""

    design: FacilityDesign
    units: int

    @property
    def height(self) -> float:
        return self.units * _UNIT

    def draw_both_sides(self, racks: Sequence[int]) -> str:
        """Draw the first of several identical racks, front and rear."""
        placed = self.design.room.get_rack(racks[0])
        watts = sum(p.device.peak_watts for p in placed)
        weight = sum(p.device.weight_kg for p in placed)
        used = sum(p.device.rack_units for p in placed)
        facts = f"{used} U used, {weight:,.0f} kg of devices, {watts / 1000:.1f} kW at peak"
        title = _format_title(racks)
        if self.design.on_desk:
            title, facts = "Beside the desk", f"{weight:,.0f} kg, {watts / 1000:.1f} kW at peak"
        cords_by_pdu: CordsByPdu = defaultdict(list)
        for cord in self.design.list_rack_cords(racks[0]):
            cords_by_pdu[cord.feed, cord.pdu].append(cord)
        front = self._draw_frame("front", numbered=not self.design.on_desk)
        front += "".join(self._draw_device(p) for p in placed)
        rear = self._draw_frame("rear", numbered=False)
        rear += "".join(self._draw_device(p, indent=26) for p in placed)
        rear += "".join(self._draw_pdu(*pdu, cords) for pdu, cords in cords_by_pdu.items())
        return (
            text(title, 0, 16, size=15, bold=True)
            + text(facts, 0, 36, size=12, fill=MUTED)
            + translate(front, 0, 60)
            + translate(rear + self._draw_legend(cords_by_pdu), _OUTER + _GAP, 60)
        )

    def _draw_frame(self, label: str, *, numbered: bool) -> str:
        parts = [
            text(label, _OUTER / 2, -6, size=12, fill=MUTED, anchor="middle"),
            element("rect", x=-2, y=-2, width=_OUTER + 4, height=self.height + 4, rx=5, fill=GRAY[1]),
            element("rect", x=0, y=0, width=_OUTER, height=self.height, rx=3, fill="#f7f8fa"),
            element("rect", x=_POST, y=0, width=_WIDTH, height=self.height, fill=BACKGROUND),
            *(element("line", x1=x, x2=x, y1=0, y2=self.height, stroke=GRAY[1], stroke_width=0.7)
              for x in (_POST, _POST + _WIDTH)),
        ]  # fmt: skip
        for unit in range(1, self.units + 1):
            y = self.height - unit * _UNIT
            parts.append(element("rect", x=_POST, y=y, width=_WIDTH, height=_UNIT, fill="none",
                                 stroke="#eceff2", stroke_width=0.7))  # fmt: skip
            if numbered:
                foot = y + _UNIT - 3.5
                parts.append(text(str(unit), _POST - 7, foot, size=9, fill=MUTED, anchor="end"))
                parts.append(text(str(unit), _POST + _WIDTH + 7, foot, size=9, fill=MUTED))
        return "".join(parts)

    def _draw_device(self, placed: PlacedDevice, indent: float = 10) -> str:
        label = placed.label
        name = placed.device.name.removeprefix("workstation with ").removeprefix("server with ")
        fill, stroke = _get_paint(placed.device.kind)
        height = placed.device.rack_units * _UNIT
        top = self._get_bottom(placed) - height
        frame = element("rect", x=_POST + 1, y=top + 0.8, width=_WIDTH - 2, height=height - 1.6,
                        rx=2.5, fill=fill, stroke=stroke, stroke_width=1.2)  # fmt: skip
        size = 11 if height >= 24 else 9.5
        left, middle, room = _POST + indent, top + height / 2, _WIDTH - 2 * indent
        if height < 30:
            return frame + text(
                shorten(f"{label}: {name}", room, size), left, middle + 3.5, size=size
            )
        watts = f"{placed.device.rack_units} U, {placed.device.peak_watts / 1000:.1f} kW"
        return (
            frame
            + text(shorten(name, room, size), left, middle - 2, size=size)
            + text(f"{label}, {watts}", left, middle + 13, size=10, fill=MUTED)
        )

    def _get_bottom(self, placed: PlacedDevice) -> float:
        return (self.units - placed.unit + 1) * _UNIT

    def _draw_pdu(self, feed: str, number: int, cords: Sequence[PlacedCord]) -> str:
        """Draw a PDU and its cords: feed A on the left, feed B on the right."""
        pdu, color = self.design.pdu_choice.pdus["AB".index(feed)], _FEEDS[feed]
        top, height = (4.0, self.height - 8) if pdu.model else (self.height - 30, 26.0)
        if feed == "A":
            x = _POST - _PDU_PITCH * number
            edge, inner = x + _PDU, _POST + 14
        else:
            x = _POST + _WIDTH + _PDU_PITCH * number - _PDU
            edge, inner = x, _POST + _WIDTH - 14
        parts = [element("rect", x=x, y=top, width=_PDU, height=height, rx=3, fill=BACKGROUND,
                         stroke=color, stroke_width=1.6)]  # fmt: skip
        bank_height = height / len(pdu.banks)
        cords_per_bank, drawn_per_bank = Counter(cord.bank for cord in cords), Counter[int]()
        for cord in cords:
            drawn_per_bank[cord.bank] += 1
            share = drawn_per_bank[cord.bank] / (cords_per_bank[cord.bank] + 1)
            y = top + height - bank_height * (cord.bank - 1 + share)
            device = cord.device.device
            supply = device.rack_units * _UNIT * (cord.supply - 0.5) / device.supplies
            target, bend = self._get_bottom(cord.device) - supply, (edge + inner) / 2
            curve: list[str | float] = ["M", edge, y, "C", bend, y, bend, target, inner, target]
            parts += [
                path(curve, stroke=color, stroke_width=1.4, opacity=0.85),
                element("circle", cx=inner, cy=target, r=2.6, fill=color),
                element("rect", x=x + 3.5, y=y - 3, width=_PDU - 7, height=6, rx=1,
                        fill=_LEGS[cord.leg]),
            ]  # fmt: skip
        return "".join(parts)

    def _draw_legend(self, cords_by_pdu: CordsByPdu) -> str:
        y, x, parts = self.height + 18, 0.0, []
        for feed, count in Counter(feed for feed, _ in cords_by_pdu).items():
            pdu = self.design.pdu_choice.pdus["AB".index(feed)]
            has_two_feeds = self.design.site.feeds == 2
            parts.append(element("rect", x=0, y=y - 9, width=10, height=10, rx=2, fill=BACKGROUND,
                                 stroke=_FEEDS[feed], stroke_width=1.6))  # fmt: skip
            parts.append(
                text(
                    f"feed {feed}: {count} × {pdu.name}" if has_two_feeds else pdu.name,
                    16,
                    y,
                    size=11,
                )
            )
            y += 17
        pdu = self.design.pdu_choice.pdus[0]
        if pdu.legs == 3:
            phase_to_phase = pdu.circuit.voltage <= 250
            names = ("L1-L2", "L2-L3", "L3-L1") if phase_to_phase else ("L1", "L2", "L3")
            for name, color in zip(names, _LEGS, strict=True):
                parts.append(element("rect", x=x, y=y - 8, width=9, height=7, rx=1, fill=color))
                parts.append(text(name, x + 14, y, size=11))
                x += 30 + text_width(name, 11)
        return "".join(parts)


def _format_title(racks: Sequence[int]) -> str:
    numbers = format_ranges(rack + 1 for rack in racks)
    if len(racks) == 1:
        return f"Rack {numbers}"
    return shorten(f"{len(racks)} racks: {numbers}", 2 * _WIDTH, 15)


def _get_paint(kind: str) -> Paint:
    """Return the colors for a kind of device. Storage and management networks have one color for all tiers."""
    if kind.startswith("storage"):
        return TEAL
    return GRAY if kind.startswith("management") else _PAINTS[kind]
