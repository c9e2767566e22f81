"""Drawings of machines: the presets as they are in the documentation, and machines that are harder to
draw: NICs and drives, four sockets, chained switches, no GPUs, labels that are markup."""

import io
import re
import shutil
from collections.abc import Iterator
from itertools import combinations
from xml.etree import ElementTree

import pytest
from playwright.sync_api import sync_playwright

from gpuyard.catalog import gpus
from gpuyard.draw.topology import topology_svg, topology_terminal
from gpuyard.draw.topology.layout import lay_out
from gpuyard.hardware.graph import Device, DeviceKind, MachineGraph, Wire
from gpuyard.hardware.pairs import bandwidth_matrix, class_matrix, latency_matrix
from gpuyard.hardware.presets import PRESETS, build_preset
from gpuyard.hardware.rings import STAGED_SHARE

SVG = "{http://www.w3.org/2000/svg}"
CHROMIUM = shutil.which("chromium")
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
Area = tuple[float, float, float, float]


class Bench:
    """Puts a machine together by hand."""

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

    def join_sockets(self, a: int, b: int) -> None:
        self.wires.append(Wire(f"CPU{a}", f"CPU{b}", "socket", 20e9, 5e-7))

    def hang(self, id: str, kind: DeviceKind, parent: str, label: str = "", lanes: int = 16) -> str:
        self.devices.append(Device(id, kind, label))
        self.wires.append(Wire(parent, id, "pcie", 1.5e9 * lanes, 5e-7, 4, lanes))
        return id

    def nvlink(self, a: str, b: str, links: int) -> None:
        self.wires.append(Wire(a, b, "nvlink", 20e9 * links, 1e-6, 3, links))

    def graph(self, name: str, *notes: str) -> MachineGraph:
        return MachineGraph(name, tuple(self.devices), tuple(self.wires), None, notes)


def rails() -> MachineGraph:
    """Two sockets, eight GPUs, a NIC beside every GPU, drives, six NVSwitches."""
    bench = Bench()
    bridges = bench.socket(0) + bench.socket(1)
    bench.join_sockets(0, 1)
    for i in range(4):
        switch = bench.hang(f"SW{i}", "switch", bridges[i // 2], "PEX 88096")
        for j in (2 * i, 2 * i + 1):
            bench.hang(f"GPU{j}", "gpu", switch, "A100 SXM4 80 GB")
            bench.hang(f"NIC{j}", "nic", switch, f"mlx5_{j}")
        bench.hang(f"nvme{i}", "nvme", switch, "7.68 TB", lanes=4)
    bench.hang("NIC8", "nic", bridges[0], "ConnectX-6 Dx", lanes=8)
    for i in range(6):
        bench.devices.append(Device(f"NVSW{i}", "nvswitch", "NVSwitch"))
        for j in range(8):
            bench.nvlink(f"GPU{j}", f"NVSW{i}", 2)
    return bench.graph("eight rails", "Read from a running machine; rates are those of the slots.")


def four_sockets() -> MachineGraph:
    """Every socket joined to every other, four host bridges each, a GPU or a drive under each."""
    bench = Bench()
    gpu = 0
    for socket in range(4):
        for number, bridge in enumerate(bench.socket(socket, bridges=4)):
            if number < 2:
                bench.hang(f"GPU{gpu}", "gpu", bridge, "L40S")
                gpu += 1
            elif number == 2:
                bench.hang(f"nvme{socket}", "nvme", bridge, lanes=4)
    for a in range(4):
        for b in range(a + 1, 4):
            bench.join_sockets(a, b)
    return bench.graph("four sockets")


def deep() -> MachineGraph:
    """A chain of three switches, each with GPUs of its own, slots of three widths."""
    bench = Bench()
    (parent,) = bench.socket(0)
    bench.hang("GPU0", "gpu", parent, "GeForce GTX 1080 Ti", lanes=8)
    for i in range(3):
        parent = bench.hang(f"SW{i}", "switch", parent, "PEX 8747")
        bench.hang(f"GPU{2 * i + 1}", "gpu", parent, "GeForce GTX 1080 Ti")
        bench.hang(f"GPU{2 * i + 2}", "gpu", parent, "GeForce GTX 1080 Ti", lanes=4)
    bench.hang("NIC0", "nic", parent, "ConnectX-4", lanes=8)
    return bench.graph("a chain of switches")


def one_root(gpus: int) -> MachineGraph:
    """All GPUs straight on one host bridge."""
    bench = Bench()
    (bridge,) = bench.socket(0)
    for i in range(gpus):
        bench.hang(f"GPU{i}", "gpu", bridge, "GeForce RTX 3090")
    return bench.graph(f"{gpus} GPUs on one CPU")


def full_mesh() -> MachineGraph:
    """Eight GPUs, each joined to all others."""
    bench = Bench()
    bridges = bench.socket(0) + bench.socket(1)
    bench.join_sockets(0, 1)
    for i in range(8):
        bench.hang(f"GPU{i}", "gpu", bridges[i // 4], "Instinct MI300X")
    for a in range(8):
        for b in range(a + 1, 8):
            bench.nvlink(f"GPU{a}", f"GPU{b}", 1)
    return bench.graph("full mesh")


def power9() -> MachineGraph:
    """NVLink between CPU and GPUs as well as between GPUs."""
    bench = Bench()
    for socket, bridge in enumerate(bench.socket(0) + bench.socket(1)):
        for gpu in (2 * socket, 2 * socket + 1):
            bench.hang(f"GPU{gpu}", "gpu", bridge, "Tesla V100 SXM2 16 GB")
            bench.nvlink(f"CPU{socket}", f"GPU{gpu}", 3)
        bench.nvlink(f"GPU{2 * socket}", f"GPU{2 * socket + 1}", 3)
    bench.join_sockets(0, 1)
    return bench.graph("power9")


def without_gpus() -> MachineGraph:
    """A storage server."""
    bench = Bench()
    first, second = bench.socket(0) + bench.socket(1)
    bench.join_sockets(0, 1)
    for i in range(5):
        bench.hang(f"nvme{i}", "nvme", first, "PM9A3", lanes=4)
    bench.hang("NIC0", "nic", second, "ConnectX-7")
    bench.hang("NIC1", "nic", second, "ConnectX-7")
    return bench.graph("no GPUs")


def hostile() -> MachineGraph:
    """Labels that are markup, too long, or carry characters that XML forbids; a NIC on two sockets."""
    bench = Bench()
    first, second = bench.socket(0) + bench.socket(1)
    bench.join_sockets(0, 1)
    bench.hang("GPU<0>", "gpu", first, '<script>alert("x")</script> & [bold]co\x00.')
    bench.hang(
        "0000:3b:00.0",
        "gpu",
        second,
        "NVIDIA Corporation GP102 [GeForce GTX 1080 Ti] (rev a1) " * 3,
    )
    bench.hang("NIC0", "nic", first, "two-headed", lanes=8)
    bench.wires.append(Wire(second, "NIC0", "pcie", 12e9, 5e-7, 4, 8))
    return bench.graph('<b>hostile</b> & "quoted"', "a [red]note[/red] with <i>markup</i>")


def partly_known() -> MachineGraph:
    """What discovery may be left with: GPUs and a switch that nothing joins to a CPU."""
    bench = Bench()
    bench.socket(0)
    bench.devices.append(Device("SW0", "switch"))
    bench.hang("GPU0", "gpu", "SW0")
    bench.hang("GPU1", "gpu", "SW0")
    bench.devices.append(Device("GPU2", "gpu"))
    return bench.graph("partly known")


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
    return build_preset(name, gpus().get(gpu or usual.usual_gpu), count or usual.usual_gpus)


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
    """Every rectangle with the groups that move it taken in."""

    def walk(element: ElementTree.Element, x: float, y: float) -> Iterator[Area]:
        moved = re.match(r"translate\((\S+) (\S+)\)", element.get("transform", ""))
        if moved:
            x, y = x + float(moved[1]), y + float(moved[2])
        if element.tag == f"{SVG}rect":
            left, top = x + float(element.attrib["x"]), y + float(element.attrib["y"])
            width, height = float(element.attrib["width"]), float(element.attrib["height"])
            yield left, top, left + width, top + height
        for child in element:
            yield from walk(child, x, y)

    return walk(ElementTree.fromstring(svg), 0, 0)  # noqa: S314


def overlap(one: Area, two: Area, tolerance: float = 0.0) -> bool:
    across = min(one[2], two[2]) - max(one[0], two[0])
    down = min(one[3], two[3]) - max(one[1], two[1])
    return across > tolerance and down > tolerance


@each_machine
def test_a_drawing_is_xml_with_every_device_and_only_numbers(graph: MachineGraph) -> None:
    svg = topology_svg(graph)
    drawn = {g.get("data-device") for g in ElementTree.fromstring(svg).iter(f"{SVG}g")}  # noqa: S314
    assert {device.id for device in graph.devices} <= drawn
    assert not re.search(r"\b(nan|inf|None)\b", svg)


@each_machine
def test_the_same_machine_gives_the_same_bytes(graph: MachineGraph) -> None:
    again = MachineGraph(graph.name, graph.devices, graph.wires, graph.pcie_peers, graph.notes)
    assert topology_svg(graph) == topology_svg(again)


@each_machine
def test_no_two_boxes_overlap_but_a_host_bridge_with_its_own_cpu(graph: MachineGraph) -> None:
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
    svg = topology_svg(graph)
    view = ElementTree.fromstring(svg).attrib["viewBox"].split()  # noqa: S314
    width, height = float(view[2]), float(view[3])
    for left, top, right, bottom in placed_rects(svg):
        assert left >= 0 and top >= 0 and right <= width and bottom <= height


@each_machine
def test_wires_under_one_parent_never_cross(graph: MachineGraph) -> None:
    routes = lay_out(graph).routes
    for one, two in combinations(routes, 2):
        for a, b in zip(one.points, one.points[1:], strict=False):
            for c, d in zip(two.points, two.points[1:], strict=False):
                first = (min(a[0], b[0]), min(a[1], b[1]), max(a[0], b[0]), max(a[1], b[1]))
                second = (min(c[0], d[0]), min(c[1], d[1]), max(c[0], d[0]), max(c[1], d[1]))
                assert not overlap(first, second, -0.1), (one.child, two.child)


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
    svg = topology_svg(hostile())
    assert "<script" not in svg and "<b>" not in svg and "<i>" not in svg
    root = ElementTree.fromstring(svg)  # noqa: S314
    assert root.findtext(f"{SVG}title") == hostile().name
    assert "<b>hostile</b>" in (root.findtext(f"{SVG}desc") or "")


@each_machine
def test_the_heat_map_shows_the_matrix(graph: MachineGraph) -> None:
    cells = {
        (g.get("data-from"), g.get("data-to")): [t.text for t in g.iter(f"{SVG}text")]
        for g in ElementTree.fromstring(topology_svg(graph)).iter(f"{SVG}g")  # noqa: S314
        if g.get("data-from") is not None
    }
    rates, classes = bandwidth_matrix(graph), class_matrix(graph)
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


RACK_WORDS = {
    "NVL72": "One of 18 identical trays is drawn; the others have CPU2–CPU35 and GPU4–GPU71.",
    "NVL32": "One of 16 identical trays is drawn; the others have CPU2–CPU31 and GPU2–GPU31.",
    "a tray cut in two": "One of 17 identical trays is drawn; the others have CPU2–CPU33 and GPU4–GPU67.",
}


@pytest.mark.parametrize("name", RACKS)
def test_of_a_rack_one_tray_is_drawn_and_the_numbers_are_those_of_all(name: str) -> None:
    from rich.console import Console

    svg = topology_svg(RACKS[name])
    root = ElementTree.fromstring(svg)  # noqa: S314
    assert float(root.attrib["width"]) < 1000 and float(root.attrib["height"]) < 1000
    drawn = {g.get("data-device") for g in root.iter(f"{SVG}g")} - {None}
    last = {"a tray cut in two": {"CPU34", "HB34", "GPU68", "GPU69"}}.get(name, set())
    tray = {"NVSW", "CPU0", "CPU1", "HB0", "HB1"}
    gpus = 2 if name == "NVL32" else 4
    assert drawn == tray | {f"GPU{i}" for i in range(gpus)} | last
    shown = [t.text or "" for t in root.iter(f"{SVG}text")]
    out = io.StringIO()
    Console(file=out, width=120).print(topology_terminal(RACKS[name]))
    cpus = len(RACKS[name].of_kind("socket"))
    reaches = "Every GPU reaches every other at "
    for text in (" ".join(shown), out.getvalue()):
        assert RACK_WORDS[name] in text and reaches in text and f"{cpus} CPUs" in text
    assert len(out.getvalue().splitlines()) < 25


def test_of_trays_that_differ_each_kind_is_drawn() -> None:
    bench = Bench()
    bench.devices.append(Device("NVSW", "nvswitch", "NVSwitch"))
    for i in range(18):
        (bridge,) = bench.socket(i)
        bench.hang(f"GPU{i}", "gpu", bridge, "B200", lanes=16 if i != 7 else 8)
        bench.nvlink(f"GPU{i}", "NVSW", 18)
    svg = topology_svg(bench.graph("one slot is narrow"))
    drawn = {g.get("data-device") for g in ElementTree.fromstring(svg).iter(f"{SVG}g")}  # noqa: S314
    assert {f"GPU{i}" for i in range(18)} & drawn == {"GPU0", "GPU7"}
    assert "One of 17 identical trays is drawn" in svg


def test_a_pair_has_the_rate_of_its_slowest_wire() -> None:
    graph = preset("dual-root")
    path = graph.transfer_path("GPU0", "GPU7")
    rates, seconds = bandwidth_matrix(graph), latency_matrix(graph)
    assert rates[0][7] == min(hop.wire.bytes_per_second for hop in path)
    assert seconds[0][7] == sum(hop.wire.latency_seconds for hop in path)
    assert rates[0][0] is None and seconds[0][0] is None


def test_a_staged_pair_loses_its_share_and_is_marked() -> None:
    graph = preset("nvlink-pairs")
    slot = next(wire.bytes_per_second for wire in graph.wires if wire.kind == "pcie")
    rates = bandwidth_matrix(graph)
    assert rates[0][2] == STAGED_SHARE * slot
    assert rates[0][1] == next(w.bytes_per_second for w in graph.wires if w.kind == "nvlink")
    assert "GPU0 to GPU2: 19.2 GB/s, PHB, through host memory" in topology_svg(graph)
    assert "through host memory" not in topology_svg(preset("dual-root"))


def test_traffic_uses_all_nvswitches_at_once() -> None:
    assert bandwidth_matrix(rails())[0][7] == 6 * 2 * 20e9


def test_what_nothing_joins_is_shown_not_raised() -> None:
    assert class_matrix(partly_known())[0] == ["X", "PIX", "N/A"]
    assert bandwidth_matrix(partly_known())[0][2] is None


@each_machine
@pytest.mark.parametrize("width", [120, 1000])
def test_a_terminal_shows_every_gpu_in_120_columns(graph: MachineGraph, width: int) -> None:
    from rich.console import Console

    out = io.StringIO()
    Console(file=out, width=width).print(topology_terminal(graph))
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    assert max(map(len, lines)) <= 120
    for device in graph.devices:
        assert any(device.id in line for line in lines), device.id


def test_a_terminal_is_not_moved_by_a_label() -> None:
    from rich.console import Console

    bench = Bench()
    bench.hang("GPU0", "gpu", bench.socket(0)[0], "\x1b[2Jgone [red]not red[/red]")
    out = io.StringIO()
    Console(file=out, width=120).print(topology_terminal(bench.graph("escape")))
    assert "\x1b" not in out.getvalue() and "[red]not red[/red]" in out.getvalue()


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")
def test_no_text_covers_another_or_leaves_the_view() -> None:
    measure = """() => [...document.querySelectorAll('text')].map(t => {
        const r = t.getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom, t.textContent]
    })"""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page()
        for name, graph in (MACHINES | RACKS).items():
            page.set_content(f"<body style='margin:0'>{topology_svg(graph)}")
            texts = page.evaluate(measure)
            view = page.locator("svg").bounding_box()
            assert view is not None
            for left, top, right, bottom, words in texts:
                assert left >= 0 and top >= 0, (name, words)
                assert right <= view["width"] and bottom <= view["height"], (name, words)
            for one, two in combinations(texts, 2):
                assert not overlap(tuple(one[:4]), tuple(two[:4]), 2.5), (name, one, two)
        browser.close()


@pytest.mark.parametrize(
    ("preset", "meanings"),
    [
        ("nvlink-pairs", ["NV#: over # NVLinks", "PHB: through a host bridge"]),
        ("dual-socket", ["PHB: through a host bridge", "SYS: across the link between CPUs"]),
    ],
)
def test_a_terminal_says_what_the_classes_mean(preset: str, meanings: list[str]) -> None:
    from rich.console import Console

    known = PRESETS[preset]
    graph = build_preset(preset, gpus().get(known.usual_gpu), known.usual_gpus)
    out = io.StringIO()
    Console(file=out, width=80).print(topology_terminal(graph))
    lines = [line.strip() for line in out.getvalue().splitlines()]
    explained = [line for line in lines if re.match(r"[A-Z#/]+: ", line)]
    assert explained == meanings
