"""Machine graphs by topology name: how GPUs connect to switches, host bridges, and sockets, for any GPU."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations
from typing import get_args

from gpuyard.catalog import Gpu, gpus, machines
from gpuyard.errors import UnknownName, UserMistake
from gpuyard.hardware.graph import (
    Device,
    MachineGraph,
    Slot,
    Wire,
    create_gpu_link_wire,
    create_internal_wire,
    create_pcie_wire,
    create_socket_wire,
    find_pcie_peers,
    get_gpu_slot,
)
from gpuyard.specs import Topology

# NVLinks of a hybrid cube mesh: two fully connected quads and four links across. V100 doubles some of them.
# NVIDIA DGX-1 with Tesla V100 system architecture whitepaper (2017), figures 4 and 5.
_CUBE_MESH_P100 = {
    (0, 1): 1, (0, 2): 1, (0, 3): 1, (1, 2): 1, (1, 3): 1, (2, 3): 1,
    (4, 5): 1, (4, 6): 1, (4, 7): 1, (5, 6): 1, (5, 7): 1, (6, 7): 1,
    (0, 4): 1, (1, 5): 1, (2, 6): 1, (3, 7): 1,
}  # fmt: skip
_CUBE_MESH_V100 = _CUBE_MESH_P100 | {
    (0, 3): 2, (1, 2): 2, (2, 3): 2, (0, 4): 2, (1, 5): 2, (4, 7): 2, (5, 6): 2, (6, 7): 2,
}  # fmt: skip


@dataclass(frozen=True)
class Preset:
    """A topology: how to build it, which GPUs support it, and its default GPUs."""

    name: Topology
    default_gpu: str
    default_gpus: int
    build: Callable[["_GraphBuilder"], None]
    supports: Callable[[Gpu], bool] = lambda _: True
    """Returns whether machines with this GPU have this topology."""
    max_gpus: Callable[[Gpu], float] = lambda _: math.inf
    """Returns the largest number of GPUs in such a machine."""


@dataclass
class _GraphBuilder:
    """Collects the devices and wires of a machine with one kind of GPU."""

    gpu: Gpu
    gpus: int
    socket_link: str | None = None
    devices: list[Device] = field(default_factory=list)
    wires: list[Wire] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add_sockets(self, count: int, group_size: int | None = None) -> list[str]:
        """Add CPUs with one host bridge each, connected in a row within each group; return the host bridges."""
        slot, group_size = get_gpu_slot(self.gpu), group_size or count
        for i in range(count):
            node = i % group_size
            self.devices.append(Device(f"CPU{i}", "socket", f"CPU {i}", numa_node=node))
            self.devices.append(Device(f"HB{i}", "host-bridge", f"host bridge {i}", numa_node=node))
            self.wires.append(create_internal_wire(f"CPU{i}", f"HB{i}", slot))
        self.wires += [
            create_socket_wire(f"CPU{i - 1}", f"CPU{i}", slot, self.gpu, self.socket_link)
            for i in range(1, count)
            if i % group_size
        ]
        return [f"HB{i}" for i in range(count)]

    def add_switch(self, id: str, parent: str, label: str, lanes: int = 16) -> str:
        self.devices.append(Device(id, "switch", label))
        self._connect_pcie(parent, id, lanes)
        return id

    def add_gpus(self, parents: list[str]) -> None:
        """Add all GPUs in order, the same number under each parent, the remainder under the last."""
        gpus_per_parent = -(-self.gpus // len(parents))
        for i in range(self.gpus):
            self.add_gpu(i, parents[min(i // gpus_per_parent, len(parents) - 1)], 16)

    def add_gpu(self, number: int, parent: str, lanes: int) -> None:
        self.devices.append(Device(f"GPU{number}", "gpu", self.gpu.name, gpu=self.gpu.id))
        self._connect_pcie(parent, f"GPU{number}", lanes)

    def link_gpus(self, link_counts: dict[tuple[int, int], int]) -> None:
        """Connect pairs of GPUs by the given number of GPU links."""
        for (a, b), count in link_counts.items():
            if max(a, b) < self.gpus:
                self._add_gpu_links(f"GPU{a}", f"GPU{b}", count)

    def add_nvswitch(self) -> None:
        # all NVSwitches act as one: every link of a GPU reaches every other GPU at full rate
        self.devices.append(Device("NVSW", "nvswitch", "NVSwitch"))
        for i in range(self.gpus):
            self._add_gpu_links(f"GPU{i}", "NVSW", self.gpu.peer_links)

    def _connect_pcie(self, parent: str, child: str, lanes: int) -> None:
        slot = Slot(self.gpu.pcie_generation, min(lanes, self.gpu.pcie_lanes))
        self.wires.append(create_pcie_wire(parent, child, slot))

    def _add_gpu_links(self, a: str, b: str, count: int) -> None:
        if self.gpu.peer_link is None:
            raise ValueError(f"{self.gpu.id} has no GPU links")
        self.wires.append(create_gpu_link_wire(a, b, self.gpu.peer_link, count))


def _build_workstation(builder: _GraphBuilder) -> None:
    """Connect all GPUs directly to one CPU."""
    builder.add_gpus(builder.add_sockets(1))


def _build_dual_socket(builder: _GraphBuilder) -> None:
    """Connect the GPUs directly to two CPUs."""
    builder.add_gpus(builder.add_sockets(2))


def _build_dual_root(builder: _GraphBuilder) -> None:
    """Build two CPUs with two PCIe switches each: Supermicro 4028GR-TRT, 4029GP-TRT."""
    bridges = builder.add_sockets(2)
    switches = [builder.add_switch(f"SW{i}", bridges[i // 2], "PEX 8748") for i in range(4)]
    builder.add_gpus(switches)


def _build_single_root(builder: _GraphBuilder) -> None:
    """Build one CPU with two PCIe switches: Supermicro 4028GR-TR2, 4029GP-TRT2."""
    (bridge,) = builder.add_sockets(1)
    builder.add_gpus([builder.add_switch(f"SW{i}", bridge, "PEX 8796") for i in range(2)])


def _build_cascaded(builder: _GraphBuilder) -> None:
    """Build one CPU, a PCIe switch, and a second switch behind it: Supermicro 4029GP-TRT3."""
    (bridge,) = builder.add_sockets(1)
    first = builder.add_switch("SW0", bridge, "PEX 8796")
    builder.add_gpus([first, builder.add_switch("SW1", first, "PEX 8796")])


def _build_cube_mesh(builder: _GraphBuilder) -> None:
    """Connect two quads of GPUs by NVLink: NVIDIA DGX-1, HPE Apollo 6500, AWS p3.16xlarge."""
    _add_switched_host(builder)
    builder.link_gpus(_CUBE_MESH_P100 if builder.gpu.nvlink_links == 4 else _CUBE_MESH_V100)


def _build_pairs(builder: _GraphBuilder) -> None:
    """Connect the GPUs in pairs by NVLink bridges."""
    builder.add_gpus(builder.add_sockets(2 if builder.gpus > 4 else 1))
    # only IBM's S822LC and AC922 pair SXM2 GPUs; there, the other half of the links goes to the CPU
    links_per_pair = builder.gpu.peer_links // (2 if builder.gpu.form_factor == "SXM2" else 1)
    builder.link_gpus({(i, i + 1): links_per_pair for i in range(0, builder.gpus - 1, 2)})


def _build_nvswitch(builder: _GraphBuilder) -> None:
    """Connect all GPUs to NVSwitches: NVIDIA DGX-2, DGX A100, HGX H100, HGX B200, GB200 NVL72."""
    if builder.gpu.form_factor == "superchip":
        _add_superchip_trays(builder)
    else:
        _add_switched_host(builder)
    builder.add_nvswitch()


def _build_full_mesh(builder: _GraphBuilder) -> None:
    """Link every GPU directly to every other: AMD Instinct MI300X, Intel Gaudi, HGX boards with four GPUs."""
    _add_switched_host(builder)
    count = builder.gpu.peer_links // max(builder.gpus - 1, 1)
    builder.link_gpus(dict.fromkeys(combinations(range(builder.gpus), 2), count))


def _build_torus(builder: _GraphBuilder) -> None:
    """Link chips to their neighbors in rows and columns that wrap around: Google TPU, AWS Trainium."""
    _add_switched_host(builder)
    rows = next(n for n in range(math.isqrt(builder.gpus), 0, -1) if builder.gpus % n == 0)
    columns = builder.gpus // rows
    pairs: set[tuple[int, int]] = set()
    for i in range(builder.gpus):
        row, column = divmod(i, columns)
        right = row * columns + (column + 1) % columns
        below = (row + 1) % rows * columns + column
        pairs |= {(min(i, other), max(i, other)) for other in (right, below) if other != i}
    builder.link_gpus(dict.fromkeys(sorted(pairs), 1))


def _build_consumer(builder: _GraphBuilder) -> None:
    """Build a desktop board: up to two slots share the CPU's 16 lanes, and the others share four chipset lanes."""
    (bridge,) = builder.add_sockets(1)
    for i in range(min(builder.gpus, 2)):
        builder.add_gpu(i, bridge, 16 if builder.gpus == 1 else 8)
    if builder.gpus > 2:
        chipset = builder.add_switch("SW0", bridge, "chipset", lanes=4)
        for i in range(2, builder.gpus):
            builder.add_gpu(i, chipset, 4)


def _add_switched_host(builder: _GraphBuilder) -> None:
    """Add the host side of SXM machines: two sockets, and two GPUs under each PCIe switch."""
    bridges = builder.add_sockets(2 if builder.gpus > 4 else 1)
    count = max(1, -(-builder.gpus // 2))
    builder.add_gpus(
        [
            builder.add_switch(f"SW{i}", bridges[i * len(bridges) // count], "PCIe switch")
            for i in range(count)
        ]
    )


def _add_superchip_trays(builder: _GraphBuilder) -> None:
    """Add trays of two Grace CPUs, each with one (GH200) or two (GB200, GB300) GPUs; only NVLink connects trays."""
    # GH200 NVL32: 16 trays with two superchips. GB200 NVL72: 18 compute trays with 4 GPUs (NVIDIA's multi-node tuning guide)
    gpus_per_cpu = 1 if _is_grace_hopper(builder.gpu) else 2
    builder.add_gpus(builder.add_sockets(-(-builder.gpus // gpus_per_cpu), group_size=2))
    builder.notes.append(
        "NVLink-C2C connects the CPU and GPUs of a superchip, and an NVIDIA link the CPUs of a tray. The catalog has "
        "no rate for either: PCIe and UPI are assumed, which are slower"
    )


def _supports_pairs(gpu: Gpu) -> bool:
    return gpu.nvlink_bridge or gpu.form_factor == "SXM2" or _is_grace_hopper(gpu)


def _supports_cube_mesh(gpu: Gpu) -> bool:  # later boards have switches, or four GPUs
    return gpu.nvlink_id is not None and gpu.form_factor == "SXM2"


def _supports_nvswitch(gpu: Gpu) -> bool:
    return gpu.nvswitch_gpus is not None


def _supports_full_mesh(gpu: Gpu) -> bool:
    return gpu.mesh_gpus is not None or gpu.fabric_topology == "full-mesh"


def _supports_torus(gpu: Gpu) -> bool:
    return gpu.fabric_topology == "torus"


def _supports_consumer(gpu: Gpu) -> bool:
    return gpu.form_factor == "PCIe"


def _max_nvswitch_gpus(gpu: Gpu) -> float:
    return gpu.nvswitch_gpus or math.inf


def _max_mesh_gpus(gpu: Gpu) -> float:
    if gpu.mesh_gpus is not None:
        return gpu.mesh_gpus
    return gpu.peer_links + 1 if gpu.fabric_topology == "full-mesh" else math.inf


def _is_grace_hopper(gpu: Gpu) -> bool:
    return gpu.form_factor == "superchip" and gpu.nvlink_generation == 4


PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset("workstation", "gtx-1080-ti", 4, _build_workstation),
        Preset("dual-socket", "rtx-a6000", 8, _build_dual_socket),
        Preset("dual-root", "gtx-1080-ti", 8, _build_dual_root),
        Preset("single-root", "gtx-1080-ti", 8, _build_single_root),
        Preset("cascaded", "gtx-1080-ti", 8, _build_cascaded),
        Preset(
            "nvlink-hybrid-cube-mesh",
            "v100-sxm2-16gb",
            8,
            _build_cube_mesh,
            _supports_cube_mesh,
            lambda _: 8,
        ),
        Preset("nvlink-pairs", "rtx-3090", 4, _build_pairs, _supports_pairs),
        Preset(
            "nvswitch", "a100-sxm4-80gb", 8, _build_nvswitch, _supports_nvswitch, _max_nvswitch_gpus
        ),
        Preset("full-mesh", "mi300x", 8, _build_full_mesh, _supports_full_mesh, _max_mesh_gpus),
        Preset("torus", "trainium-1", 16, _build_torus, _supports_torus),
        Preset("consumer", "rtx-4090", 2, _build_consumer, _supports_consumer),
    )
}


def list_topologies(gpu: Gpu) -> list[Topology]:
    """Return the topologies of machines with this GPU."""
    return [preset.name for preset in PRESETS.values() if preset.supports(gpu)]


def choose_topology(gpu: Gpu, count: int) -> Topology:
    """Return the most common topology of machines with this many GPUs of a kind."""
    if count > 1 and gpu.fabric_topology is not None and count <= _max_mesh_gpus(gpu):
        return gpu.fabric_topology
    if count > 1 and _is_grace_hopper(
        gpu
    ):  # NVSwitch racks are common only from Grace Blackwell on
        return "full-mesh" if count <= _max_mesh_gpus(gpu) else "dual-socket"
    if count > 1 and _supports_nvswitch(gpu):
        return "nvswitch"
    if count > 1 and _supports_cube_mesh(gpu):
        return "nvlink-hybrid-cube-mesh" if count in (4, 8) else "dual-socket"
    return "workstation" if count <= 4 else "dual-socket"


def check_topology(name: str, gpu: Gpu, gpus: int) -> None:
    """Raise an error if the GPUs lack the links for a topology, or if no such machine was ever built."""
    if not PRESETS[name].supports(gpu):
        raise UserMistake(
            f"{gpu.id} does not support the topology {name}: {_explain_unsupported(name, gpu)}; "
            f"supported: {', '.join(list_topologies(gpu))}"
        )
    max_gpus = PRESETS[name].max_gpus(gpu)
    if gpus > max_gpus:
        raise UserMistake(
            f"a machine with {gpu.id} and the topology {name} has up to {max_gpus:g} GPUs, got {gpus}; "
            + suggest_machines(gpu, gpus, int(max_gpus))
        )


def suggest_machines(gpu: Gpu, gpus: int, max_gpus: int) -> str:
    """Suggest what has this many GPUs, because one machine of this kind has not."""
    if gpus <= (gpu.nvswitch_gpus or 0):
        return f"nvswitch connects up to {gpu.nvswitch_gpus}"
    nodes = -(-gpus // max_gpus)
    product = next((m.id for m in machines() if (m.gpu, m.gpus) == (gpu.id, max_gpus)), None)
    example = f"{nodes}x{product}" if product else f"{nodes}x{max_gpus}x{gpu.id}@100G"
    return f"use several machines, e.g. {example}"


def _explain_unsupported(name: str, gpu: Gpu) -> str:
    links = f"it has {gpu.links_description}"
    if name == "consumer":
        return f"it is not a PCIe card ({gpu.form_factor})"
    if gpu.nvlink_id is None or gpu.nvlink_bridge or name == "torus":
        return links
    return f"{links}, and no machine connects it that way"


def build_preset(name: str, gpu: Gpu, gpus: int, socket_link: str | None = None) -> MachineGraph:
    """Build a machine with this topology and these GPUs."""
    if name not in PRESETS:
        raise UnknownName("topology preset", name, PRESETS)
    check_topology(name, gpu, gpus)
    builder = _GraphBuilder(gpu, gpus, socket_link)
    PRESETS[name].build(builder)
    return MachineGraph(
        f"{name} with {gpus} × {gpu.id}",
        tuple(builder.devices),
        tuple(builder.wires),
        find_pcie_peers([gpu]),
        tuple(builder.notes),
    )


def get_preset(topology: str, gpu: Gpu, count: int, socket_link: str | None = None) -> MachineGraph:
    """Return a cached preset. The same object is returned each time, so results that are cached by graph stay valid."""
    return _build_cached(topology, gpu.id, count, socket_link)


@lru_cache(maxsize=256)
def _build_cached(topology: str, gpu: str, count: int, socket_link: str | None) -> MachineGraph:
    return build_preset(topology, gpus().get(gpu), count, socket_link)


if set(PRESETS) != set(get_args(Topology)):
    raise AssertionError("every topology in the specs must have a preset")
