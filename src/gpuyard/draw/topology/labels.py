"""Which PCIe wires carry a label and where it stands: one for wires that are alike, so that nothing
is said twice."""

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

from gpuyard.draw.markup import text_width
from gpuyard.draw.topology.layout import Layout
from gpuyard.draw.topology.routes import Route
from gpuyard.draw.topology.words import rate, wire_name

SIZE = 11.0
_BESIDE = 6.0  # from a wire
_ABOVE = 24.0  # from a box to the first of two lines
_BELOW = 17.0  # from the last track

Name = tuple[str, str]


@dataclass(frozen=True)
class Label:
    """Two lines: what the wire is and its rate."""

    lines: Name
    x: float
    y: float
    centred: bool = False

    @property
    def right(self) -> float:
        width = max(text_width(line, SIZE) for line in self.lines)
        return self.x + (width / 2 if self.centred else width)


def pcie_labels(layout: Layout) -> list[Label]:
    """All labels, parent by parent."""
    labels: list[Label] = []
    for parent in dict.fromkeys(route.parent for route in layout.routes):
        labels += _under_parent([r for r in layout.routes if r.parent == parent], layout)
    return labels


def _under_parent(routes: list[Route], layout: Layout) -> list[Label]:
    if len(routes) == 1:
        return [Label(_name(routes[0]), routes[0].drop + _BESIDE, _below_tracks(routes))]
    common, count = Counter(_name(route) for route in routes).most_common(1)[0]
    shared = _shared(routes, common) if 2 * count > len(routes) else None
    if shared is None:
        return _own(routes, layout)
    return [shared, *_own([r for r in routes if _name(r) != common], layout)]


def _shared(routes: list[Route], common: Name) -> Label | None:
    """Between two wires that it holds for, as near to the middle as it fits."""
    lines = (common[0], f"{common[1]} each")
    wide = max(text_width(line, SIZE) for line in lines) + _BESIDE
    gaps = [
        (one.drop + two.drop) / 2
        for one, two in pairwise(routes)
        if _name(one) == _name(two) == common and two.drop - one.drop > wide
    ]
    if not gaps:
        return None
    middle = (routes[0].drop + routes[-1].drop) / 2
    at = min(gaps, key=lambda gap: abs(gap - middle))
    return Label(lines, at, _below_tracks(routes), centred=True)


def _own(routes: list[Route], layout: Layout) -> list[Label]:
    """Each beside its wire; of like wires close together only the last one has it."""
    labels = []
    for number, route in enumerate(routes):
        after = routes[number + 1] if number + 1 < len(routes) else None
        label = Label(_name(route), route.drop + _BESIDE, layout.boxes[route.child].y - _ABOVE)
        said = after is not None and _name(after) == _name(route) and after.drop < label.right
        if not said:
            labels.append(label)
    return labels


def _below_tracks(routes: list[Route]) -> float:
    return max(route.points[1][1] for route in routes) + _BELOW


def _name(route: Route) -> Name:
    return wire_name(route.wire), rate(route.wire.bytes_per_second)
