"""Read the output of `lstopo --of xml` (hwloc 1, 2, and later) into a machine graph."""

import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import combinations

from gpuyard.catalog import Gpu, gpus, links
from gpuyard.errors import UserMistake, quote
from gpuyard.hardware.graph import MachineGraph, Wire, find_slot_by_rate
from gpuyard.hardware.product_names import find_catalog_gpu
from gpuyard.hardware.readers.pci_tree import NumaNode, PciGraphBuilder, PciNode
from gpuyard.hardware.readers.xml_text import Element

# "0302 [10de:102d] [10de:106c] a1"
_PCI_TYPE = re.compile(r"([0-9a-f]{4}) \[([0-9a-f]{4}):([0-9a-f]{4})\].*", re.IGNORECASE)
_BUS_ID = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE)
_MAX_GPUS, _MAX_DEVICES = 72, 512
_MAX_PCI, _MAX_NODES = 4096, 256
_MAX_BITMAP_WORDS = 1024  # 32,768 CPUs
_SAME_GPU_MB_PER_SECOND = 1_000_000  # hwloc's value on the diagonal


def graph_from_lstopo(root: Element, source: str, gpu: str | None = None) -> MachineGraph:
    """Build the machine of a <topology> element; `gpu` is the catalog id of its GPUs, if the file has no model names."""
    machine = next(iter(root.all("object")), None)
    if machine is None:
        raise UserMistake(f"{root.place}: <topology> must contain an <object>")
    _check_size(machine)
    model = gpus().get(gpu) if gpu else None
    notes: list[str] = []
    nodes = _read_numa_nodes(machine)
    if not nodes:
        raise UserMistake(f"{machine.place}: no NUMA node or package with CPUs")
    for nodeset, bridge in _find_host_bridges(machine, frozenset(nodes), source):
        owner = min(nodeset & set(nodes), default=min(nodes))
        if len(nodes) > 1 and len(nodeset & set(nodes)) != 1:
            notes.append(
                f"the socket of host bridge {bridge.address} is unknown; {owner} is assumed"
            )
        nodes[owner] = replace(nodes[owner], host_bridges=(*nodes[owner].host_bridges, bridge))
    builder = PciGraphBuilder(source, [nodes[n] for n in sorted(nodes)], model, notes=notes).build()
    _check_device_counts(machine, builder.ids.values())
    builder.wires += _create_nvlinks(root, machine, builder, model)
    return builder.graph()


def _check_size(machine: Element) -> None:
    kinds = Counter(element.attributes.get("type") for element in _objects(machine))
    for noun, count, maximum in (
        ("PCI devices and bridges", kinds["PCIDev"] + kinds["Bridge"], _MAX_PCI),
        ("NUMA nodes", kinds["NUMANode"], _MAX_NODES),
        ("packages", kinds["Package"] + kinds["Socket"], _MAX_NODES),
    ):
        if count > maximum:
            raise UserMistake(f"{machine.place}: more than {maximum:,} {noun} in one machine")


def _check_device_counts(machine: Element, ids: Collection[str]) -> None:
    gpu_count = sum(id.startswith("GPU") for id in ids)
    for noun, count, maximum in (
        ("GPUs", gpu_count, _MAX_GPUS),
        ("GPUs, network cards, and drives", len(ids), _MAX_DEVICES),
    ):
        if count > maximum:
            raise UserMistake(
                f"{machine.place}: one machine has at most {maximum} {noun}, this one has {count:,}"
            )


def _read_numa_nodes(machine: Element) -> dict[int, NumaNode]:
    """Return the NUMA nodes that have CPUs, by number; on old kernels, packages take their place."""
    packages = [o for o in _objects(machine) if o.attributes.get("type") in ("Package", "Socket")]
    numa = [o for o in _objects(machine) if o.attributes.get("type") == "NUMANode"]
    package_cpus = [_parse_bitmap(package.attributes.get("cpuset", "")) for package in packages]
    nodes: dict[int, NumaNode] = {}
    for element in numa or packages:
        cpus = _parse_bitmap(element.attributes.get("cpuset", ""))
        if cpus:
            index = element.attributes.get("os_index", "")
            number = int(index) if index.isdecimal() and len(index) < 7 else len(nodes)
            package = next((i for i, shared in enumerate(package_cpus) if cpus & shared), number)
            nodes[number] = NumaNode(number, package, format_cpu_list(cpus))
    return nodes


def _find_host_bridges(
    element: Element, nodeset: frozenset[int], source: str
) -> Iterator[tuple[frozenset[int], PciNode]]:
    """Yield every host bridge with the NUMA nodes of its parent object."""
    local_nodes = frozenset(_parse_bitmap(element.attributes.get("nodeset", ""))) or nodeset
    for child in element.all("object"):
        if child.attributes.get("type") != "Bridge":
            yield from _find_host_bridges(child, local_nodes, source)
        elif child.attributes.get("bridge_type", "").startswith("0-"):
            yield local_nodes, _read_pci_node(child, source)
        else:  # hwloc can be configured to leave out host bridges
            address = child.attributes.get("pci_busid", "?")
            yield local_nodes, PciNode(address, children=(_read_pci_node(child, source),))


def _read_pci_node(element: Element, source: str) -> PciNode:
    attributes = element.attributes
    address = attributes.get("pci_busid", "")
    if attributes.get("type") == "PCIDev" and not _BUS_ID.fullmatch(address):
        raise UserMistake(
            f"{element.place}: expected a pci_busid like 0000:06:00.0, got {quote(address)}"
        )
    kind = _PCI_TYPE.fullmatch(attributes.get("pci_type", ""))
    inner = element.all("object")
    devices = [child for child in inner if child.attributes.get("type") == "OSDev"]
    models = [info.attributes.get("value", "") for d in devices for info in d.all("info")
              if info.attributes.get("name") == "GPUModel"]  # fmt: skip
    return PciNode(
        address=address or attributes.get("bridge_pci", "?"),
        class_code=int(kind[1], 16) if kind else 0x0604,
        vendor=int(kind[2], 16) if kind else 0,
        names=tuple(d.attributes.get("name", "") for d in devices),
        product=models[0] if models else attributes.get("name", ""),
        slot=find_slot_by_rate(_parse_rate(attributes.get("pci_link_speed", ""))),
        children=tuple(
            _read_pci_node(child, source)
            for child in inner
            if child.attributes.get("type") in ("Bridge", "PCIDev")
        ),
    )


def _create_nvlinks(
    root: Element, machine: Element, builder: PciGraphBuilder, gpu: Gpu | None
) -> list[Wire]:
    """Create direct NVLinks from hwloc's matrix of NVLink bandwidths, in MB/s per direction."""
    ids = {o.attributes.get("gp_index"): builder.ids.get(parent.attributes.get("pci_busid", ""))
           for parent in _objects(machine) for o in parent.all("object")
           if o.attributes.get("type") == "OSDev"}  # fmt: skip
    names = {i.attributes.get("value", "") for o in _objects(machine) for i in o.all("info")
             if i.attributes.get("name") == "GPUModel"}  # fmt: skip
    model = gpu or next((entry for name in names if (entry := find_catalog_gpu(name))), None)
    link = links().get((model and model.nvlink_id) or "nvlink-2")
    wires = []
    for table in root.children:
        if table.attributes.get("name") != "NVLinkBandwidth":
            continue
        indexes = " ".join(e.text for e in table.all("indexes")).split()
        values = [
            int(v)
            for e in table.all("u64values")
            for v in e.text.split()
            if v.isdecimal() and len(v) < 16
        ]
        if len(values) != len(indexes) ** 2:
            continue
        for i, j in combinations(range(len(indexes)), 2):
            a, b = (ids.get(indexes[k].rpartition(":")[2]) for k in (i, j))
            rate = values[i * len(indexes) + j] * 1e6
            if rate and not (a and b):
                builder.notes.append("NVLinks between GPUs and CPUs are not drawn")
            if a and b and 0 < rate < _SAME_GPU_MB_PER_SECOND * 1e6:
                count = max(1, round(rate / link.raw_bytes_per_second))
                share = link.effective_bytes_per_second / link.raw_bytes_per_second
                wires.append(
                    Wire(
                        a,
                        b,
                        "nvlink",
                        rate * share,
                        link.latency_seconds,
                        int(link.id.split("-")[1]),
                        count,
                    )
                )
    return wires


def _parse_rate(text: str) -> float:
    return float(text) if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text) else 0.0


def _objects(element: Element) -> Iterator[Element]:
    """Yield an element and all objects below it."""
    yield element
    for child in element.all("object"):
        yield from _objects(child)


def _parse_bitmap(text: str) -> set[int]:
    """Return the bits that are set in an hwloc bitmap: 32-bit hexadecimal words, highest first, empty if 0."""
    bits: set[int] = set()
    for i, word in enumerate(reversed(text.split(",")[-_MAX_BITMAP_WORDS:])):
        if re.fullmatch(r"0x[0-9a-fA-F]{1,16}", word):
            value = int(word, 16)
            bits |= {32 * i + n for n in range(value.bit_length()) if value >> n & 1}
    return bits


def format_cpu_list(cpus: set[int]) -> str:
    """Format CPU numbers as Linux does: 0-7,16-23."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
