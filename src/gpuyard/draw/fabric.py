"""Draws a network fabric as an SVG file: tiers of switches above their machines, with cable counts."""

from dataclasses import dataclass
from itertools import pairwise

from gpuyard.draw.markup import element, path, render_drawing, shorten, text
from gpuyard.draw.palette import BACKGROUND, BLUE, GREEN, MUTED, ORANGE, PURPLE
from gpuyard.facilities.fabric.design import FabricDesign
from gpuyard.units import format_bit_rate, format_byte_rate

_PAINTS = {"core": ORANGE, "spine": PURPLE, "leaf": BLUE, "node": GREEN}
_NAMES = {"core": "cores", "spine": "spines", "leaf": "leaves", "node": "machines"}
_MAX_BOXES = {"core": 12, "spine": 16, "leaf": 16, "node": 16}
_WIDTH, _MARGIN, _LABEL = 1080.0, 28.0, 128.0
_BOX_HEIGHT, _TIER_GAP, _TITLE = 36.0, 118.0, 74.0


@dataclass(frozen=True)
class _Row:
    """One tier and the device numbers that are drawn; None marks a gap for omitted devices."""

    tier: str
    count: int
    top: float
    slots: tuple[int | None, ...]

    @property
    def _pitch(self) -> float:
        return (_WIDTH - 2 * _MARGIN - _LABEL) / len(self.slots)

    @property
    def box_width(self) -> float:
        return min(self._pitch - 8, 74.0)

    def center(self, slot: int) -> float:
        return _MARGIN + _LABEL + self._pitch * (slot + 0.5)

    def find_center(self, number: int) -> float | None:
        """Return the center of a device's box, or None if the device is not drawn."""
        return next((self.center(i) for i, n in enumerate(self.slots) if n == number), None)


def draw_fabric_svg(design: FabricDesign, hosts: str = "machines") -> str:
    """Draw the whole fabric; a long tier shows only its first and last devices. `hosts` names the lowest tier."""
    shape = design.shape
    counts = [("core", shape.cores), ("spine", shape.spines), ("leaf", shape.leaves)]
    tiers = [(tier, count) for tier, count in counts if count]
    tiers.append(("node", design.request.nodes))
    rows = [
        _Row(
            tier,
            count,
            _TITLE + _MARGIN + index * (_BOX_HEIGHT + _TIER_GAP),
            _choose_slots(tier, count),
        )
        for index, (tier, count) in enumerate(tiers)
    ]
    height = rows[-1].top + _BOX_HEIGHT + 62 + _MARGIN
    by_tier = {row.tier: row for row in rows}
    parts = [*_draw_title(design), *_draw_cables(design, by_tier)]
    for row in rows:
        parts += _draw_boxes(design, row)
    parts += _draw_labels(design, rows, hosts)
    parts.append(_draw_footer(design, any(None in row.slots for row in rows), height))
    switches = ", ".join(f"{n} {tier}" for tier, n in design.switches.items() if n)
    about = f"A {design.kind} fabric on {design.switch.name}: {switches}."
    if design.request.direct:
        about = f"Two machines connected directly by {design.request.ports_per_node} cables."
    title = f"Fabric of {design.request.nodes} machines"
    return render_drawing(parts, _WIDTH, height, title=title, about=about)


def _choose_slots(tier: str, count: int) -> tuple[int | None, ...]:
    max_boxes = _MAX_BOXES[tier]
    if count <= max_boxes:
        return tuple(range(count))
    last = max_boxes // 4
    first = max_boxes - last - 1
    return (*range(first), None, *range(count - last, count))


def _draw_cables(design: FabricDesign, rows: dict[str, _Row]) -> list[str]:
    wiring, lines = design.wiring, []
    if design.request.direct:
        row = rows["node"]
        middle = row.top + _BOX_HEIGHT / 2
        between: list[str | float] = ["M", row.center(0), middle, "L", row.center(1), middle]
        thickness = _get_thickness(design.request.ports_per_node)
        return [path(between, stroke=_PAINTS["node"][1], stroke_width=thickness)]
    pairs: dict[tuple[str, str], dict[tuple[int, int], int]] = {
        ("leaf", "spine"): {(b.lower, b.upper): b.links for b in wiring.iter_leaf_spine()},
        ("spine", "core"): {(b.lower, b.upper): b.links for b in wiring.iter_spine_core()},
        ("node", "leaf"): {},
    }
    drawn = {n for n in rows["node"].slots if n is not None}
    for node in drawn:
        for port in range(design.request.ports_per_node):
            pair = (node, wiring.find_leaf(node, port))
            pairs["node", "leaf"][pair] = pairs["node", "leaf"].get(pair, 0) + 1
    for (lower, upper), cables in pairs.items():
        if upper not in rows:
            continue
        for (lower_number, upper_number), links in cables.items():
            low = rows[lower].find_center(lower_number)
            high = rows[upper].find_center(upper_number)
            if low is not None and high is not None:
                color = _PAINTS[upper][1]
                data: list[str | float] = ["M", low, rows[lower].top, "L", high]
                data.append(rows[upper].top + _BOX_HEIGHT)
                lines.append(path(data, stroke=color, stroke_width=_get_thickness(links)))
    return [element("g", "\n".join(lines), opacity="0.5")] if lines else []


def _get_thickness(links: int) -> float:
    return min(0.8 + 0.25 * links, 4.0)


def _draw_boxes(design: FabricDesign, row: _Row) -> list[str]:
    fill, stroke = _PAINTS[row.tier]
    parts = []
    for slot, n in enumerate(row.slots):
        x = row.center(slot)
        if n is None:
            parts.append(text("…", x, row.top + 24, size=20, fill=MUTED, anchor="middle"))
            continue
        width = row.box_width
        parts.append(element("rect", x=x - width / 2, y=row.top, width=width, height=_BOX_HEIGHT, rx=5,
                             fill=fill, stroke=stroke, stroke_width=1.4))  # fmt: skip
        rails = _format_rails(design, n) if row.tier == "leaf" else ""
        y = row.top + (16 if rails else 23)
        parts.append(text(f"{n + 1}", x, y, size=13, anchor="middle", bold=True))
        if rails:
            parts.append(text(rails, x, row.top + 30, size=10, fill=MUTED, anchor="middle"))
    return parts


def _format_rails(design: FabricDesign, leaf: int) -> str:
    """Name the rails that a leaf switch carries."""
    shape = design.shape
    if shape.groups == 1:
        return ""
    per_group = design.request.rails // shape.groups
    first = leaf // shape.leaves_per_pod // shape.parts * per_group + 1
    return f"rail {first}" if per_group == 1 else f"rail {first}–{first + per_group - 1}"


def _draw_labels(design: FabricDesign, rows: list[_Row], hosts: str) -> list[str]:
    parts = []
    for row in rows:
        name = _NAMES[row.tier] if row.count > 1 else ("switch" if row.tier == "leaf" else row.tier)
        if row.tier == "node":
            name = hosts if row.count > 1 else hosts.removesuffix("s")
        parts.append(text(f"{row.count:,} {name}", _MARGIN, row.top + 17, size=14, bold=True))
        parts.append(
            text(_format_model(design, row.tier, hosts), _MARGIN, row.top + 33, size=11, fill=MUTED)
        )
    counts = design.cable_counts
    for upper, lower in pairwise(rows):
        links = counts[f"{lower.tier}_{upper.tier}"]
        bundle = {"leaf": design.shape.leaf_spine_bundle, "spine": design.shape.spine_core_bundle}
        each = f", {bundle[lower.tier]} per pair" if lower.tier in bundle else ""
        middle = (upper.top + _BOX_HEIGHT + lower.top) / 2
        parts.append(text(f"{links:,} cables{each}", _MARGIN, middle + 4, size=12,
                          halo=BACKGROUND))  # fmt: skip
    return parts


def _format_model(design: FabricDesign, tier: str, hosts: str) -> str:
    if tier == "node" and hosts == "ports":
        return "on hosts"
    if tier == "node":
        ports = design.request.ports_per_node
        return f"{ports} port{'s' if ports > 1 else ''} each"
    return (design.switch if tier == "leaf" else design.spine_switch).name


def _draw_title(design: FabricDesign) -> list[str]:
    rate = format_bit_rate(design.switch.port_bytes_per_second)
    names = {s.id: s.name for s in (design.switch, design.spine_switch)}
    chassis = " and ".join(f"{count} × {names[id]}" for id, count in design.chassis.items())
    rails = f", {design.request.rails} rails" if design.request.rails > 1 else ""
    inner_width = _WIDTH - 2 * _MARGIN
    ratio = design.oversubscription
    subtitle = "connected directly, without a switch"
    if chassis:
        subtitle = (
            f"{chassis}{rails}; "
            + ("non-blocking" if ratio == 1 else f"{ratio:.3g}:1 oversubscribed")
            + f"; up to {design.hops} switch{'es' if design.hops > 1 else ''} on a path"
        )
    title = f"{design.request.endpoints:,} ports of {rate}"
    return [
        text(shorten(title, inner_width, 19), _MARGIN, _MARGIN + 16, size=19, bold=True),
        text(shorten(subtitle, inner_width, 13), _MARGIN, _MARGIN + 40, size=13, fill=MUTED),
    ]


def _draw_footer(design: FabricDesign, shortened: bool, height: float) -> str:
    bisection = format_byte_rate(design.bisection_bytes_per_second)
    spare = design.spare_leaf_ports
    boards = ""
    if design.boards is not None:
        boards = (
            f" The chassis holds {design.boards.leaf_boards} leaf boards and "
            f"{design.boards.spine_boards} spine boards."
        )
    omitted = " Cables to devices that are not drawn are omitted." if shortened else ""
    line = f"Bisection bandwidth {bisection} per direction. Free ports for machines: {spare:,}.{boards}{omitted}"
    return text(line, _MARGIN, height - _MARGIN, size=12, fill=MUTED)
