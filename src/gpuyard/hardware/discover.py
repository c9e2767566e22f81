"""The machine graph of this host, from sysfs and NVML, or from lstopo where there is no sysfs."""

import platform
import re
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

from gpuyard.catalog import Gpu
from gpuyard.errors import MissingRequirement
from gpuyard.hardware.graph import Device, MachineGraph, Slot, gpu_link_wire
from gpuyard.hardware.nvml import NvmlGpus, read_nvml
from gpuyard.hardware.product_names import catalog_gpu
from gpuyard.hardware.readers.pci_tree import NumaNode, PciMachine, PciNode
from gpuyard.hardware.readers.read import graph_from_text

_HOST_BRIDGE = re.compile(r"pci([0-9a-f]{4,}:[0-9a-f]{2})")
_FUNCTION = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_GENERATION = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}  # by GT/s
_LSTOPO_SECONDS = 30


def discover_machine(sysfs: Path = Path("/sys")) -> MachineGraph:
    """Look at this host; one without GPUs has its sockets, NICs and drives."""
    if not (sysfs / "devices").is_dir():
        return _from_lstopo()
    nvml = read_nvml()
    machine = PciMachine(
        platform.node() or "this host",
        _numa_nodes(sysfs),
        order=list(nvml.products) if nvml else [],
        products=dict(nvml.products) if nvml else {},
    ).build()
    if nvml is None:
        return machine.graph()
    nvswitch = _add_nvlinks(machine, nvml)
    ids = machine.numbers
    peers = nvml.peers and frozenset(
        frozenset(ids[gpu] for gpu in pair) for pair in nvml.peers if pair <= ids.keys()
    )
    return machine.graph(peers, nvswitch)


def _numa_nodes(sysfs: Path) -> list[NumaNode]:
    nodes: dict[int, NumaNode] = {}
    for place in sorted((sysfs / "devices/system/node").glob("node[0-9]*")):
        cpus = _text(place / "cpulist")
        if cpus:  # a node without CPUs is memory only
            number = int(place.name.removeprefix("node"))
            nodes[number] = NumaNode(number, _package(sysfs, cpus), cpus)
    if not nodes:
        nodes[0] = NumaNode(0, 0, _text(sysfs / "devices/system/cpu/online"))
    bridges: dict[int, list[PciNode]] = defaultdict(list)
    for number, bridge in _host_bridges(sysfs):
        bridges[number if number in nodes else min(nodes)].append(bridge)
    return [
        NumaNode(n, node.package, node.cpus, tuple(bridges[n])) for n, node in sorted(nodes.items())
    ]


def _package(sysfs: Path, cpus: str) -> int:
    first = re.match(r"\d+", cpus)
    topology = sysfs / f"devices/system/cpu/cpu{first[0] if first else 0}/topology"
    return _number(_text(topology / "physical_package_id")) or 0


def _host_bridges(sysfs: Path) -> list[tuple[int, PciNode]]:
    """Every host bridge with its NUMA node; the tree is in the real paths of the functions."""
    below: dict[Path, set[Path]] = defaultdict(set)
    roots: dict[Path, str] = {}
    for link in sorted((sysfs / "bus/pci/devices").glob("*")):
        place = link.resolve()
        while _FUNCTION.fullmatch(place.name):
            below[place.parent].add(place)
            place = place.parent
        if bridge := _HOST_BRIDGE.fullmatch(place.name):
            roots[place] = bridge[1]

    def node(place: Path) -> PciNode:
        return PciNode(
            address=place.name,
            class_code=(_number(_text(place / "class"), 16) or 0) >> 8,
            vendor=_number(_text(place / "vendor"), 16) or 0,
            names=_names(place),
            slot=_slot(place),
            children=tuple(node(child) for child in sorted(below[place])),
        )

    found = []
    for root in sorted(roots):
        children = sorted(below[root])
        numbers = [_number(_text(place / "numa_node")) for place in children]
        number = next((n for n in numbers if n is not None and n >= 0), 0)
        found.append((number, PciNode(roots[root], children=tuple(map(node, children)))))
    return found


def _names(place: Path) -> tuple[str, ...]:
    """What the system calls a NIC or drive, the RDMA name first; virtio puts a level between."""
    patterns = ("infiniband/*", "net/*", "virtio*/net/*", "nvme/nvme*")
    return tuple(found.name for pattern in patterns for found in sorted(place.glob(pattern)))


def _slot(place: Path) -> Slot | None:
    """The best that a function and the port above it can do, on the lanes that it has now."""
    generations = [
        generation
        for end in (place, place.parent)
        if (generation := _generation(_text(end / "max_link_speed")))
    ]
    lanes = _number(_text(place / "current_link_width"))
    generation = min(generations, default=_generation(_text(place / "current_link_speed")))
    if not generation or not lanes or lanes > 32:  # 63 lanes of a device without a link
        return None
    return Slot(generation, lanes)


def _generation(speed: str | None) -> int | None:
    """ "8.0 GT/s PCIe" is generation 3."""
    rate = re.match(r"[\d.]+(?= GT/s)", speed or "")
    return _GENERATION.get(float(rate[0])) if rate else None


def _add_nvlinks(machine: PciMachine, nvml: NvmlGpus) -> list[Device]:
    ids = machine.numbers
    models = {address: catalog_gpu(name) for address, name in nvml.products.items()}
    for pair, count in nvml.direct.items():
        if pair <= ids.keys():
            a, b = sorted(pair, key=list(nvml.products).index)
            machine.wires.append(gpu_link_wire(ids[a], ids[b], _nvlink(models[a], machine), count))
    switched = {gpu: count for gpu, count in nvml.switched.items() if gpu in ids}
    for gpu, count in switched.items():
        machine.wires.append(gpu_link_wire(ids[gpu], "NVSW", _nvlink(models[gpu], machine), count))
    return [Device("NVSW", "nvswitch", "NVSwitch")] if switched else []


def _nvlink(model: Gpu | None, machine: PciMachine) -> str:
    if model and model.nvlink_id:
        return model.nvlink_id
    machine.notes.append("the catalog does not know the NVLinks of these GPUs: nvlink-2 is assumed")
    return "nvlink-2"


def _from_lstopo() -> MachineGraph:
    lstopo = shutil.which("lstopo-no-graphics") or shutil.which("lstopo")
    if lstopo is None:
        raise MissingRequirement(
            f"{platform.system()} does not list its PCI devices in /sys; install hwloc, whose lstopo does"
        )
    try:
        done = subprocess.run(
            [lstopo, "--of", "xml"],
            capture_output=True,
            text=True,
            timeout=_LSTOPO_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise MissingRequirement(f"lstopo --of xml failed: {error}") from None
    return graph_from_text(done.stdout, platform.node() or "this host")


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None


def _number(text: str | None, base: int = 10) -> int | None:
    try:
        return int(text or "", base)
    except ValueError:
        return None
