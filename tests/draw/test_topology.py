"""Tests of machine drawings: the presets of the documentation, and machines that are harder to draw.

The hard ones have NICs and drives, four sockets, chained switches, no GPUs, or labels that contain markup.
"""

import io
import re
from collections.abc import Iterator
from itertools import combinations
from xml.etree import ElementTree

import pytest

from gpuyard.catalog import gpus
from gpuyard.draw.topology import draw_topology_svg, draw_topology_text
from gpuyard.draw.topology.layout import lay_out
from gpuyard.hardware.graph import Device, DeviceKind, MachineGraph, Wire
from gpuyard.hardware.pairs import (
    compute_bandwidth_matrix,
    compute_class_matrix,
    compute_latency_matrix,
)
from gpuyard.hardware.presets import PRESETS, build_preset
from gpuyard.hardware.rings import STAGED_SHARE
from tests.browser import launch_chromium, needs_browser

SVG = "{http://www.w3.org/2000/svg}"
Area = tuple[float, float, float, float]


class MachineBuilder:
    """Assembles a machine device by device."""

    def __init__(self) -> None:
        self.devices: list[Device] = []
        self.wires: list[Wire] = []

    def socket(self, number: int, bridges: int = 1) -> list[str]:
        cpu = f"CPU{number}"
        self.devices.append(Device(cpu, "socket", f"CPU {number}", None, "0-27", number))
        names = [f"HB{number}" if bridges == 1 else f"HB{number}.{i}" for i in range(bridges)]
        for name in names:
            self.devices.append(Device(name, "host-bridge", "host bridge"))
            self.wires.append(Wire(cpu, name, "internal", 400e9, 0.0))
        return names

    def connect_sockets(self, a: int, b: int) -> None:
        self.wires.append(Wire(f"CPU{a}", f"CPU{b}", "socket", 20e9, 5e-7))

    def attach(
        self, id: str, kind: DeviceKind, parent: str, label: str = "", lanes: int = 16
    ) -> str:
        self.devices.append(Device(id, kind, label))
        self.wires.append(Wire(parent, id, "pcie", 1.5e9 * lanes, 5e-7, 4, lanes))
        return id

    def nvlink(self, a: str, b: str, links: int) -> None:
        self.wires.append(Wire(a, b, "nvlink", 20e9 * links, 1e-6, 3, links))

    def graph(self, name: str, *notes: str) -> MachineGraph:
        return MachineGraph(name, tuple(self.devices), tuple(self.wires), None, notes)


def rails() -> MachineGraph:
    """Build two sockets, eight GPUs with a NIC each, drives, and six NVSwitches."""
    builder = MachineBuilder()
    bridges = builder.socket(0) + builder.socket(1)
    builder.connect_sockets(0, 1)
    for i in range(4):
        switch = builder.attach(f"SW{i}", "switch", bridges[i // 2], "PEX 88096")
        for j in (2 * i, 2 * i + 1):
            builder.attach(f"GPU{j}", "gpu", switch, "A100 SXM4 80 GB")
            builder.attach(f"NIC{j}", "nic", switch, f"mlx5_{j}")
        builder.attach(f"nvme{i}", "nvme", switch, "7.68 TB", lanes=4)
    builder.attach("NIC8", "nic", bridges[0], "ConnectX-6 Dx", lanes=8)
    for i in range(6):
        builder.devices.append(Device(f"NVSW{i}", "nvswitch", "NVSwitch"))
        for j in range(8):
            builder.nvlink(f"GPU{j}", f"NVSW{i}", 2)
    return builder.graph(
        "eight rails", "Read from a running machine; rates are those of the slots."
    )


def four_sockets() -> MachineGraph:
    """Build four fully connected sockets with four host bridges each, and GPUs or a drive under them."""
    builder = MachineBuilder()
    gpu = 0
    for socket in range(4):
        for number, bridge in enumerate(builder.socket(socket, bridges=4)):
            if number < 2:
                builder.attach(f"GPU{gpu}", "gpu", bridge, "L40S")
                gpu += 1
            elif number == 2:
                builder.attach(f"nvme{socket}", "nvme", bridge, lanes=4)
    for a in range(4):
        for b in range(a + 1, 4):
            builder.connect_sockets(a, b)
    return builder.graph("four sockets")


def deep() -> MachineGraph:
    """Build a chain of three switches, each with its own GPUs in slots of different widths."""
    builder = MachineBuilder()
    (parent,) = builder.socket(0)
    builder.attach("GPU0", "gpu", parent, "GeForce GTX 1080 Ti", lanes=8)
    for i in range(3):
        parent = builder.attach(f"SW{i}", "switch", parent, "PEX 8747")
        builder.attach(f"GPU{2 * i + 1}", "gpu", parent, "GeForce GTX 1080 Ti")
        builder.attach(f"GPU{2 * i + 2}", "gpu", parent, "GeForce GTX 1080 Ti", lanes=4)
    builder.attach("NIC0", "nic", parent, "ConnectX-4", lanes=8)
    return builder.graph("a chain of switches")


def one_root(gpus: int) -> MachineGraph:
    """Attach all GPUs directly to one host bridge."""
    builder = MachineBuilder()
    (bridge,) = builder.socket(0)
    for i in range(gpus):
        builder.attach(f"GPU{i}", "gpu", bridge, "GeForce RTX 3090")
    return builder.graph(f"{gpus} GPUs on one CPU")


def full_mesh() -> MachineGraph:
    """Connect each of eight GPUs to all others."""
    builder = MachineBuilder()
    bridges = builder.socket(0) + builder.socket(1)
    builder.connect_sockets(0, 1)
    for i in range(8):
        builder.attach(f"GPU{i}", "gpu", bridges[i // 4], "Instinct MI300X")
    for a in range(8):
        for b in range(a + 1, 8):
            builder.nvlink(f"GPU{a}", f"GPU{b}", 1)
    return builder.graph("full mesh")


def power9() -> MachineGraph:
    """Build a machine with NVLink between CPUs and GPUs as well as between GPUs."""
    builder = MachineBuilder()
    for socket, bridge in enumerate(builder.socket(0) + builder.socket(1)):
        for gpu in (2 * socket, 2 * socket + 1):
            builder.attach(f"GPU{gpu}", "gpu", bridge, "Tesla V100 SXM2 16 GB")
            builder.nvlink(f"CPU{socket}", f"GPU{gpu}", 3)
        builder.nvlink(f"GPU{2 * socket}", f"GPU{2 * socket + 1}", 3)
    builder.connect_sockets(0, 1)
    return builder.graph("power9")


def without_gpus() -> MachineGraph:
    """Build a storage server."""
    builder = MachineBuilder()
    first, second = builder.socket(0) + builder.socket(1)
    builder.connect_sockets(0, 1)
    for i in range(5):
        builder.attach(f"nvme{i}", "nvme", first, "PM9A3", lanes=4)
    builder.attach("NIC0", "nic", second, "ConnectX-7")
    builder.attach("NIC1", "nic", second, "ConnectX-7")
    return builder.graph("no GPUs")


def hostile() -> MachineGraph:
    """Use labels that are markup, too long, or contain characters that XML forbids; and a NIC on two sockets."""
    builder = MachineBuilder()
    first, second = builder.socket(0) + builder.socket(1)
    builder.connect_sockets(0, 1)
    builder.attach("GPU<0>", "gpu", first, '<script>alert("x")</script> & [bold]co\x00.')
    builder.attach(
        "0000:3b:00.0",
        "gpu",
        second,
        "NVIDIA Corporation GP102 [GeForce GTX 1080 Ti] (rev a1) " * 3,
    )
    builder.attach("NIC0", "nic", first, "two-headed", lanes=8)
    builder.wires.append(Wire(second, "NIC0", "pcie", 12e9, 5e-7, 4, 8))
    return builder.graph('<b>hostile</b> & "quoted"', "a [red]note[/red] with <i>markup</i>")


def partly_known() -> MachineGraph:
    """Build the result of an incomplete discovery: GPUs and a switch without a connection to a CPU."""
    builder = MachineBuilder()
    builder.socket(0)
    builder.devices.append(Device("SW0", "switch"))
    builder.attach("GPU0", "gpu", "SW0")
    builder.attach("GPU1", "gpu", "SW0")
    builder.devices.append(Device("GPU2", "gpu"))
    return builder.graph("partly known")


HARD = {
    graph.name: graph
    for graph in (
        rails(), four_sockets(), deep(), one_root(1), one_root(16), full_mesh(),
        power9(), without_gpus(),
        hostile(), partly_known(), MachineGraph("nothing", (), ()),
    )
}  # fmt: skip


def preset(name: str, gpu: str | None = None, count: int | None = None) -> MachineGraph:
    usual = PRESETS[name]
    return build_preset(name, gpus().get(gpu or usual.default_gpu), count or usual.default_gpus)


MACHINES = HARD | {name: preset(name) for name in PRESETS}
MACHINES["sixteen"] = preset("nvswitch", "v100-sxm3-32gb", 16)
MACHINES |= {f"consumer {count}": preset("consumer", count=count) for count in (1, 3, 4)}
RACKS = {
    "NVL72": preset("nvswitch", "gb200", 72),
    "NVL32": preset("nvswitch", "gh200-96gb", 32),
    "a tray cut in two": preset("nvswitch", "gb300", 70),
}
each_machine = pytest.mark.parametrize("graph", MACHINES.values(), ids=list(MACHINES))


def placed_rects(svg: str) -> Iterator[Area]:
    """Yield every rectangle in the coordinates of the whole drawing."""

    def walk(element: ElementTree.Element, x: float, y: float) -> Iterator[Area]:
        offset = re.match(r"translate\((\S+) (\S+)\)", element.get("transform", ""))
        if offset:
            x, y = x + float(offset[1]), y + float(offset[2])
        if element.tag == f"{SVG}rect":
            left, top = x + float(element.attrib["x"]), y + float(element.attrib["y"])
            width, height = float(element.attrib["width"]), float(element.attrib["height"])
            yield left, top, left + width, top + height
        for child in element:
            yield from walk(child, x, y)

    return walk(ElementTree.fromstring(svg), 0, 0)  # noqa: S314


def overlap(a: Area, b: Area, tolerance: float = 0.0) -> bool:
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    return width > tolerance and height > tolerance


@each_machine
def test_a_drawing_is_xml_with_every_device_and_finite_numbers(graph: MachineGraph) -> None:
    svg = draw_topology_svg(graph)
    drawn = {g.get("data-device") for g in ElementTree.fromstring(svg).iter(f"{SVG}g")}  # noqa: S314
    assert {device.id for device in graph.devices} <= drawn
    assert not re.search(r"\b(nan|inf|None)\b", svg)


@each_machine
def test_the_same_machine_gives_the_same_bytes(graph: MachineGraph) -> None:
    again = MachineGraph(graph.name, graph.devices, graph.wires, graph.pcie_peers, graph.notes)
    assert draw_topology_svg(graph) == draw_topology_svg(again)


@each_machine
def test_no_two_boxes_overlap_except_a_host_bridge_and_its_cpu(graph: MachineGraph) -> None:
    boxes = lay_out(graph).boxes
    areas = {id: (box.x, box.y, box.right, box.bottom) for id, box in boxes.items()}
    inside = {frozenset((w.a, w.b)) for w in graph.wires if w.kind == "internal"}
    assert set(areas) == {device.id for device in graph.devices}
    for a, b in combinations(areas, 2):
        assert frozenset((a, b)) in inside or not overlap(areas[a], areas[b]), (a, b)
    for pair in inside:
        bridge, cpu = sorted(pair, key=lambda id: graph.device(id).kind)
        (left, top, right, bottom), around = areas[bridge], areas[cpu]
        assert around[0] <= left and around[1] <= top
        assert right <= around[2] and bottom <= around[3]


@each_machine
def test_everything_lies_inside_the_view(graph: MachineGraph) -> None:
    svg = draw_topology_svg(graph)
    view = ElementTree.fromstring(svg).attrib["viewBox"].split()  # noqa: S314
    width, height = float(view[2]), float(view[3])
    for left, top, right, bottom in placed_rects(svg):
        assert left >= 0 and top >= 0 and right <= width and bottom <= height


@each_machine
def test_wires_under_one_parent_never_cross(graph: MachineGraph) -> None:
    routes = lay_out(graph).routes
    for route, other in combinations(routes, 2):
        for a, b in zip(route.points, route.points[1:], strict=False):
            for c, d in zip(other.points, other.points[1:], strict=False):
                first = (min(a[0], b[0]), min(a[1], b[1]), max(a[0], b[0]), max(a[1], b[1]))
                second = (min(c[0], d[0]), min(c[1], d[1]), max(c[0], d[0]), max(c[1], d[1]))
                assert not overlap(first, second, -0.1), (route.child, other.child)


@each_machine
def test_gpus_stand_in_one_row_under_their_parents(graph: MachineGraph) -> None:
    layout = lay_out(graph)
    assert len({layout.boxes[gpu].y for gpu in graph.gpus}) <= 1
    for route in layout.routes:
        assert layout.boxes[route.child].y > layout.boxes[route.parent].bottom


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_gpus_of_a_preset_stand_in_order(name: str) -> None:
    graph = MACHINES[name]
    lefts = [lay_out(graph).boxes[gpu].x for gpu in graph.gpus]
    assert lefts == sorted(lefts)


def test_markup_in_labels_is_text() -> None:
    svg = draw_topology_svg(hostile())
    assert "<script" not in svg and "<b>" not in svg and "<i>" not in svg
    root = ElementTree.fromstring(svg)  # noqa: S314
    assert root.findtext(f"{SVG}title") == hostile().name
    assert "<b>hostile</b>" in (root.findtext(f"{SVG}desc") or "")


@each_machine
def test_the_heat_map_shows_the_matrix(graph: MachineGraph) -> None:
    cells = {
        (g.get("data-from"), g.get("data-to")): [t.text for t in g.iter(f"{SVG}text")]
        for g in ElementTree.fromstring(draw_topology_svg(graph)).iter(f"{SVG}g")  # noqa: S314
        if g.get("data-from") is not None
    }
    rates, classes = compute_bandwidth_matrix(graph), compute_class_matrix(graph)
    count = range(len(graph.gpus))
    expected = {(i, j) for i in count for j in count if i != j}
    assert set(cells) == {(graph.gpus[i], graph.gpus[j]) for i, j in expected}
    for i, j in expected:
        number, path_class = cells[graph.gpus[i], graph.gpus[j]]
        rate = rates[i][j]
        assert path_class == classes[i][j]
        assert (
            number == "–"
            if rate is None
            else float(number or "") * 1e9 == pytest.approx(rate, rel=5e-3)
        )


OMITTED_TRAYS = {
    "NVL72": ("18 identical trays", "CPU2–CPU35", "GPU4–GPU71"),
    "NVL32": ("16 identical trays", "CPU2–CPU31", "GPU2–GPU31"),
    "a tray cut in two": ("17 identical trays", "CPU2–CPU33", "GPU4–GPU67"),
}


@pytest.mark.parametrize("name", RACKS)
def test_a_rack_drawing_shows_one_tray_and_summarizes_all(name: str) -> None:
    from rich.console import Console

    svg = draw_topology_svg(RACKS[name])
    root = ElementTree.fromstring(svg)  # noqa: S314
    assert float(root.attrib["width"]) < 1000 and float(root.attrib["height"]) < 1000
    drawn = {g.get("data-device") for g in root.iter(f"{SVG}g")} - {None}
    last = {"a tray cut in two": {"CPU34", "HB34", "GPU68", "GPU69"}}.get(name, set())
    tray = {"NVSW", "CPU0", "CPU1", "HB0", "HB1"}
    gpus = 2 if name == "NVL32" else 4
    assert drawn == tray | {f"GPU{i}" for i in range(gpus)} | last
    texts = [t.text or "" for t in root.iter(f"{SVG}text")]
    out = io.StringIO()
    Console(file=out, width=120).print(draw_topology_text(RACKS[name]))
    cpus = len(RACKS[name].devices_of_kind("socket"))
    for text in (" ".join(texts), " ".join(out.getvalue().split())):
        assert all(fact in text for fact in OMITTED_TRAYS[name])
        assert "Every GPU" in text and f"{cpus} CPUs" in text
    assert len(out.getvalue().splitlines()) < 25


def test_every_kind_of_tray_is_drawn() -> None:
    builder = MachineBuilder()
    builder.devices.append(Device("NVSW", "nvswitch", "NVSwitch"))
    for i in range(18):
        (bridge,) = builder.socket(i)
        builder.attach(f"GPU{i}", "gpu", bridge, "B200", lanes=16 if i != 7 else 8)
        builder.nvlink(f"GPU{i}", "NVSW", 18)
    svg = draw_topology_svg(builder.graph("one slot is narrow"))
    drawn = {g.get("data-device") for g in ElementTree.fromstring(svg).iter(f"{SVG}g")}  # noqa: S314
    assert {f"GPU{i}" for i in range(18)} & drawn == {"GPU0", "GPU7"}
    assert "17 identical trays" in svg


def test_the_rate_of_a_pair_is_that_of_its_slowest_wire() -> None:
    graph = preset("dual-root")
    path = graph.transfer_path("GPU0", "GPU7")
    rates, seconds = compute_bandwidth_matrix(graph), compute_latency_matrix(graph)
    assert rates[0][7] == min(hop.wire.bytes_per_second for hop in path)
    assert seconds[0][7] == sum(hop.wire.latency_seconds for hop in path)
    assert rates[0][0] is None and seconds[0][0] is None


def test_a_staged_pair_loses_its_share_and_is_marked() -> None:
    graph = preset("nvlink-pairs")
    slot = next(wire.bytes_per_second for wire in graph.wires if wire.kind == "pcie")
    rates = compute_bandwidth_matrix(graph)
    assert rates[0][2] == STAGED_SHARE * slot
    assert rates[0][1] == next(w.bytes_per_second for w in graph.wires if w.kind == "nvlink")
    assert "GPU0 to GPU2: 20.4 GB/s, PHB, through host memory" in draw_topology_svg(graph)
    assert "through host memory" not in draw_topology_svg(preset("dual-root"))


def test_traffic_uses_all_nvswitches_at_once() -> None:
    assert compute_bandwidth_matrix(rails())[0][7] == 6 * 2 * 20e9


def test_unconnected_gpus_are_shown_without_a_rate() -> None:
    assert compute_class_matrix(partly_known())[0] == ["X", "PIX", "N/A"]
    assert compute_bandwidth_matrix(partly_known())[0][2] is None


@each_machine
@pytest.mark.parametrize("width", [120, 1000])
def test_a_terminal_shows_every_gpu_in_120_columns(graph: MachineGraph, width: int) -> None:
    from rich.console import Console

    out = io.StringIO()
    Console(file=out, width=width).print(draw_topology_text(graph))
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    assert max(map(len, lines)) <= 120
    for device in graph.devices:
        assert any(device.id in line for line in lines), device.id


def test_labels_cannot_send_terminal_escapes() -> None:
    from rich.console import Console

    builder = MachineBuilder()
    builder.attach("GPU0", "gpu", builder.socket(0)[0], "\x1b[2Jgone [red]not red[/red]")
    out = io.StringIO()
    Console(file=out, width=120).print(draw_topology_text(builder.graph("escape")))
    assert "\x1b" not in out.getvalue() and "[red]not red[/red]" in out.getvalue()


@needs_browser
def test_no_text_covers_another_or_leaves_the_view() -> None:
    measure = """() => [...document.querySelectorAll('text')].map(t => {
        const r = t.getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom, t.textContent]
    })"""
    with launch_chromium() as browser:
        page = browser.new_page()
        for name, graph in (MACHINES | RACKS).items():
            page.set_content(f"<body style='margin:0'>{draw_topology_svg(graph)}")
            texts = page.evaluate(measure)
            view = page.locator("svg").bounding_box()
            assert view is not None
            for left, top, right, bottom, content in texts:
                assert left >= 0 and top >= 0, (name, content)
                assert right <= view["width"] and bottom <= view["height"], (name, content)
            for a, b in combinations(texts, 2):
                assert not overlap(tuple(a[:4]), tuple(b[:4]), 2.5), (name, a, b)


@pytest.mark.parametrize(
    ("preset", "meanings"),
    [
        ("nvlink-pairs", ["NV#: over # NVLinks", "PHB: through a host bridge"]),
        ("dual-socket", ["PHB: through a host bridge", "SYS: across the link between CPUs"]),
    ],
)
def test_a_terminal_explains_the_path_classes(preset: str, meanings: list[str]) -> None:
    from rich.console import Console

    default = PRESETS[preset]
    graph = build_preset(preset, gpus().get(default.default_gpu), default.default_gpus)
    out = io.StringIO()
    Console(file=out, width=80).print(draw_topology_text(graph))
    lines = [line.strip() for line in out.getvalue().splitlines()]
    explained = [line for line in lines if re.match(r"[A-Z#/]+: ", line)]
    assert explained == meanings
