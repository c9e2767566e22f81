"""Reads `lstopo --of xml` of hwloc 1, 2 and later into a machine graph."""

import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import combinations

from gpuyard.catalog import Gpu, gpus, links
from gpuyard.errors import UserMistake, quoted
from gpuyard.hardware.graph import MachineGraph, Wire, slot_of_speed
from gpuyard.hardware.product_names import catalog_gpu
from gpuyard.hardware.readers.pci_tree import NumaNode, PciMachine, PciNode
from gpuyard.hardware.readers.xml_text import Element

# "0302 [10de:102d] [10de:106c] a1"
_PCI_TYPE = re.compile(r"([0-9a-f]{4}) \[([0-9a-f]{4}):([0-9a-f]{4})\].*", re.IGNORECASE)
_BUS_ID = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE)
_MOST_GPUS, _MOST_DRAWN = 72, 512
_MOST_PCI, _MOST_NODES, _MOST_WORDS = 4096, 256, 1024  # words of a bitmap: 32,768 CPUs
_SAME_GPU_MB_PER_SECOND = 1_000_000  # what hwloc writes on the diagonal


def graph_from_lstopo(root: Element, source: str, gpu: str | None = None) -> MachineGraph:
    """The machine under a <topology>; `gpu` is a catalog id where the file does not name the model."""
    machine = next(iter(root.all("object")), None)
    if machine is None:
        raise UserMistake(f"{root.place}: <topology> contains no <object>")
    _refuse_many(machine)
    known = gpus().get(gpu) if gpu else None
    notes: list[str] = []
    nodes = _numa_nodes(machine)
    if not nodes:
        raise UserMistake(f"{machine.place}: no NUMA node and no package with CPUs in it")
    for nodeset, bridge in _host_bridges(machine, frozenset(nodes), source):
        owner = min(nodeset & set(nodes), default=min(nodes))
        if len(nodes) > 1 and len(nodeset & set(nodes)) != 1:
            notes.append(
                f"the socket of host bridge {bridge.address} is unknown; {owner} is assumed"
            )
        nodes[owner] = replace(nodes[owner], host_bridges=(*nodes[owner].host_bridges, bridge))
    built = PciMachine(source, [nodes[n] for n in sorted(nodes)], known, notes=notes).build()
    _refuse_drawn(machine, built.numbers.values())
    built.wires += _nvlinks(root, machine, built, known)
    return built.graph()


def _refuse_many(machine: Element) -> None:
    kinds = Counter(element.attributes.get("type") for element in _objects(machine))
    for what, count, most in (
        ("PCI devices and bridges", kinds["PCIDev"] + kinds["Bridge"], _MOST_PCI),
        ("NUMA nodes", kinds["NUMANode"], _MOST_NODES),
        ("packages", kinds["Package"] + kinds["Socket"], _MOST_NODES),
    ):
        if count > most:
            raise UserMistake(f"{machine.place}: more than {most:,} {what} in one machine")


def _refuse_drawn(machine: Element, ids: Collection[str]) -> None:
    gpu_count = sum(id.startswith("GPU") for id in ids)
    for what, count, most in (
        ("GPUs", gpu_count, _MOST_GPUS),
        ("GPUs, network cards and drives", len(ids), _MOST_DRAWN),
    ):
        if count > most:
            raise UserMistake(
                f"{machine.place}: one machine has at most {most} {what}, this one has {count:,}"
            )


def _numa_nodes(machine: Element) -> dict[int, NumaNode]:
    """NUMA nodes that have CPUs, by number; machines of old kernels have packages only."""
    packages = [o for o in _objects(machine) if o.attributes.get("type") in ("Package", "Socket")]
    numa = [o for o in _objects(machine) if o.attributes.get("type") == "NUMANode"]
    nodes: dict[int, NumaNode] = {}
    for place in numa or packages:
        cpus = _bitmap(place.attributes.get("cpuset", ""))
        if cpus:
            index = place.attributes.get("os_index", "")
            number = int(index) if index.isdecimal() and len(index) < 7 else len(nodes)
            chip = next(
                (
                    i
                    for i, p in enumerate(packages)
                    if cpus & _bitmap(p.attributes.get("cpuset", ""))
                ),
                number,
            )
            nodes[number] = NumaNode(number, chip, cpu_list(cpus))
    return nodes


def _host_bridges(
    place: Element, nodeset: frozenset[int], source: str
) -> Iterator[tuple[frozenset[int], PciNode]]:
    """Every host bridge with the NUMA nodes of the object that it hangs on."""
    here = frozenset(_bitmap(place.attributes.get("nodeset", ""))) or nodeset
    for child in place.all("object"):
        if child.attributes.get("type") != "Bridge":
            yield from _host_bridges(child, here, source)
        elif child.attributes.get("bridge_type", "").startswith("0-"):
            yield here, _pci_node(child, source)
        else:  # hwloc may have been told to leave host bridges out
            yield (
                here,
                PciNode(
                    child.attributes.get("pci_busid", "?"), children=(_pci_node(child, source),)
                ),
            )


def _pci_node(element: Element, source: str) -> PciNode:
    attributes = element.attributes
    address = attributes.get("pci_busid", "")
    if attributes.get("type") == "PCIDev" and not _BUS_ID.fullmatch(address):
        raise UserMistake(
            f"{element.place}: expected a pci_busid like 0000:06:00.0, got {quoted(address)}"
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
        slot=slot_of_speed(_speed(attributes.get("pci_link_speed", ""))),
        children=tuple(
            _pci_node(child, source)
            for child in inner
            if child.attributes.get("type") in ("Bridge", "PCIDev")
        ),
    )


def _nvlinks(root: Element, machine: Element, built: PciMachine, gpu: Gpu | None) -> list[Wire]:
    """Direct NVLinks from hwloc's matrix of NVLink bandwidths, in MB/s of one direction."""
    ids = {o.attributes.get("gp_index"): built.numbers.get(parent.attributes.get("pci_busid", ""))
           for parent in _objects(machine) for o in parent.all("object")
           if o.attributes.get("type") == "OSDev"}  # fmt: skip
    models = {i.attributes.get("value", "") for o in _objects(machine) for i in o.all("info")
              if i.attributes.get("name") == "GPUModel"}  # fmt: skip
    named = gpu or next((found for model in models if (found := catalog_gpu(model))), None)
    link = links().get((named and named.nvlink_id) or "nvlink-2")
    wires = []
    for table in root.children:
        if table.attributes.get("name") != "NVLinkBandwidth":
            continue
        places = " ".join(e.text for e in table.all("indexes")).split()
        values = [
            int(v)
            for e in table.all("u64values")
            for v in e.text.split()
            if v.isdecimal() and len(v) < 16
        ]
        if len(values) != len(places) ** 2:
            continue
        for i, j in combinations(range(len(places)), 2):
            a, b = (ids.get(places[k].rpartition(":")[2]) for k in (i, j))
            rate = values[i * len(places) + j] * 1e6
            if rate and not (a and b):
                built.notes.append("NVLinks between GPUs and CPUs are not drawn")
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


def _speed(words: str) -> float:
    return float(words) if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", words) else 0.0


def _objects(element: Element) -> Iterator[Element]:
    yield element
    for child in element.all("object"):
        yield from _objects(child)


def _bitmap(words: str) -> set[int]:
    """The numbers of an hwloc bitmap: words of 32 bits in hexadecimal, the highest first, empty for 0."""
    bits: set[int] = set()
    for i, word in enumerate(reversed(words.split(",")[-_MOST_WORDS:])):
        if re.fullmatch(r"0x[0-9a-fA-F]{1,16}", word):
            value = int(word, 16)
            bits |= {32 * i + n for n in range(value.bit_length()) if value >> n & 1}
    return bits


def cpu_list(cpus: set[int]) -> str:
    """CPUs as Linux writes them: 0-7,16-23."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
