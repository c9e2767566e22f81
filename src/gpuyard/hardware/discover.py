"""Discover the machine graph of this host from sysfs and NVML, or from lstopo if there is no sysfs."""

import platform
import re
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

from gpuyard.errors import MissingRequirement
from gpuyard.hardware.graph import Device, MachineGraph, Slot, create_gpu_link_wire
from gpuyard.hardware.nvml import NvmlGpus, read_nvml
from gpuyard.hardware.product_names import find_catalog_gpu
from gpuyard.hardware.readers.pci_tree import NumaNode, PciGraphBuilder, PciNode
from gpuyard.hardware.readers.topology_file import graph_from_text

_HOST_BRIDGE = re.compile(r"pci([0-9a-f]{4,}:[0-9a-f]{2})")
_FUNCTION = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_GENERATION = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}  # by GT/s
_LSTOPO_TIMEOUT_SECONDS = 30


def discover_machine(sysfs: Path = Path("/sys")) -> MachineGraph:
    """Build the graph of this host; without GPUs it has sockets, NICs, and drives."""
    if not (sysfs / "devices").is_dir():
        return _run_lstopo()
    nvml = read_nvml()
    builder = PciGraphBuilder(
        platform.node() or "this host",
        _read_numa_nodes(sysfs),
        gpu_order=list(nvml.products) if nvml else [],
        products=dict(nvml.products) if nvml else {},
    ).build()
    if nvml is None:
        return builder.graph()
    nvswitch = _add_nvlinks(builder, nvml)
    ids = builder.ids
    peers = nvml.peers and frozenset(
        frozenset(ids[gpu] for gpu in pair) for pair in nvml.peers if pair <= ids.keys()
    )
    return builder.graph(peers, nvswitch)


def _read_numa_nodes(sysfs: Path) -> list[NumaNode]:
    nodes: dict[int, NumaNode] = {}
    for directory in sorted((sysfs / "devices/system/node").glob("node[0-9]*")):
        cpus = _read_text(directory / "cpulist")
        if cpus:  # a node without CPUs only has memory
            number = int(directory.name.removeprefix("node"))
            nodes[number] = NumaNode(number, _read_package(sysfs, cpus), cpus)
    if not nodes:
        nodes[0] = NumaNode(0, 0, _read_text(sysfs / "devices/system/cpu/online"))
    bridges: dict[int, list[PciNode]] = defaultdict(list)
    for number, bridge in _read_host_bridges(sysfs):
        bridges[number if number in nodes else min(nodes)].append(bridge)
    return [
        NumaNode(n, node.package, node.cpus, tuple(bridges[n])) for n, node in sorted(nodes.items())
    ]


def _read_package(sysfs: Path, cpus: str) -> int:
    first = re.match(r"\d+", cpus)
    topology = sysfs / f"devices/system/cpu/cpu{first[0] if first else 0}/topology"
    return _parse_int(_read_text(topology / "physical_package_id")) or 0


def _read_host_bridges(sysfs: Path) -> list[tuple[int, PciNode]]:
    """Read every host bridge with its NUMA node; the resolved paths of the functions form the tree."""
    children: dict[Path, set[Path]] = defaultdict(set)
    roots: dict[Path, str] = {}
    for link in sorted((sysfs / "bus/pci/devices").glob("*")):
        directory = link.resolve()
        while _FUNCTION.fullmatch(directory.name):
            children[directory.parent].add(directory)
            directory = directory.parent
        if bridge := _HOST_BRIDGE.fullmatch(directory.name):
            roots[directory] = bridge[1]

    def read_node(directory: Path) -> PciNode:
        return PciNode(
            address=directory.name,
            class_code=(_parse_int(_read_text(directory / "class"), 16) or 0) >> 8,
            vendor=_parse_int(_read_text(directory / "vendor"), 16) or 0,
            names=_list_names(directory),
            slot=_read_slot(directory),
            children=tuple(read_node(child) for child in sorted(children[directory])),
        )

    bridges = []
    for root in sorted(roots):
        ports = sorted(children[root])
        numbers = [_parse_int(_read_text(port / "numa_node")) for port in ports]
        number = next((n for n in numbers if n is not None and n >= 0), 0)
        bridges.append((number, PciNode(roots[root], children=tuple(map(read_node, ports)))))
    return bridges


def _list_names(directory: Path) -> tuple[str, ...]:
    """Return the system's names of a NIC or drive, the RDMA name first."""
    patterns = ("infiniband/*", "net/*", "virtio*/net/*", "nvme/nvme*")
    return tuple(path.name for pattern in patterns for path in sorted(directory.glob(pattern)))


def _read_slot(directory: Path) -> Slot | None:
    """Return the best generation that a function and its port support, with the current number of lanes."""
    generations = [
        generation
        for end in (directory, directory.parent)
        if (generation := _parse_generation(_read_text(end / "max_link_speed")))
    ]
    lanes = _parse_int(_read_text(directory / "current_link_width"))
    current = _parse_generation(_read_text(directory / "current_link_speed"))
    generation = min(generations, default=current)
    if not generation or not lanes or lanes > 32:  # a device without a link reports 63 lanes
        return None
    return Slot(generation, lanes)


def _parse_generation(speed: str | None) -> int | None:
    """Return the PCIe generation of a speed; "8.0 GT/s PCIe" is generation 3."""
    rate = re.match(r"[\d.]+(?= GT/s)", speed or "")
    return _GENERATION.get(float(rate[0])) if rate else None


def _add_nvlinks(builder: PciGraphBuilder, nvml: NvmlGpus) -> list[Device]:
    """Add the NVLinks to the machine; return an NVSwitch if there are links to one."""
    ids = builder.ids
    for pair, count in nvml.direct_links.items():
        if pair <= ids.keys():
            a, b = sorted(pair, key=list(nvml.products).index)
            link = _find_nvlink(nvml.products[a], builder)
            builder.wires.append(create_gpu_link_wire(ids[a], ids[b], link, count))
    switch_links = {gpu: count for gpu, count in nvml.switch_links.items() if gpu in ids}
    for gpu, count in switch_links.items():
        link = _find_nvlink(nvml.products[gpu], builder)
        builder.wires.append(create_gpu_link_wire(ids[gpu], "NVSW", link, count))
    return [Device("NVSW", "nvswitch", "NVSwitch")] if switch_links else []


def _find_nvlink(product: str, builder: PciGraphBuilder) -> str:
    model = find_catalog_gpu(product)
    if model and model.nvlink_id:
        return model.nvlink_id
    builder.notes.append("the NVLinks of these GPUs are not in the catalog: nvlink-2 is assumed")
    return "nvlink-2"


def _run_lstopo() -> MachineGraph:
    lstopo = shutil.which("lstopo-no-graphics") or shutil.which("lstopo")
    if lstopo is None:
        raise MissingRequirement(
            f"{platform.system()} does not list its PCI devices in /sys; install hwloc, whose lstopo lists them"
        )
    try:
        completed = subprocess.run(
            [lstopo, "--of", "xml"],
            capture_output=True,
            text=True,
            timeout=_LSTOPO_TIMEOUT_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise MissingRequirement(f"lstopo --of xml failed: {error}") from None
    return graph_from_text(completed.stdout, platform.node() or "this host")


def _read_text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None


def _parse_int(text: str | None, base: int = 10) -> int | None:
    try:
        return int(text or "", base)
    except ValueError:
        return None
