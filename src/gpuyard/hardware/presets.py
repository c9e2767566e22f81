"""Machines by their topology: how GPUs hang under switches, host bridges and sockets, built for any GPU."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations
from typing import get_args

from gpuyard.catalog import Gpu, gpus
from gpuyard.errors import UnknownName, UserMistake
from gpuyard.hardware.graph import (
    Device,
    MachineGraph,
    Slot,
    Wire,
    gpu_link_wire,
    internal_wire,
    pcie_peers,
    pcie_wire,
    slot_of_gpu,
    socket_wire,
)
from gpuyard.specs import Topology

# NVLinks of a hybrid cube mesh: two fully joined quads and four links across. V100 doubles some of them.
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
    """A topology by name, and the GPUs that it usually has."""

    name: Topology
    usual_gpu: str
    usual_gpus: int
    build: Callable[["_Builder"], None]
    takes: Callable[[Gpu], bool] = lambda _: True
    """Whether machines with this GPU were built so."""
    most: Callable[[Gpu], float] = lambda _: math.inf
    """How many GPUs such a machine has at most."""


@dataclass
class _Builder:
    gpu: Gpu
    gpus: int
    socket_link: str | None = None
    devices: list[Device] = field(default_factory=list)
    wires: list[Wire] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def sockets(self, count: int, together: int | None = None) -> list[str]:
        """CPUs in a row, each with one host bridge, joined by the link of their years: all of them, or so many
        together."""
        slot, together = slot_of_gpu(self.gpu), together or count
        for i in range(count):
            node = i % together
            self.devices.append(Device(f"CPU{i}", "socket", f"CPU {i}", numa_node=node))
            self.devices.append(Device(f"HB{i}", "host-bridge", f"host bridge {i}", numa_node=node))
            self.wires.append(internal_wire(f"CPU{i}", f"HB{i}", slot))
        self.wires += [
            socket_wire(f"CPU{i - 1}", f"CPU{i}", slot, self.gpu, self.socket_link)
            for i in range(1, count)
            if i % together
        ]
        return [f"HB{i}" for i in range(count)]

    def switch(self, id: str, under: str, label: str, lanes: int = 16) -> str:
        self.devices.append(Device(id, "switch", label))
        self._slot(under, id, lanes)
        return id

    def place_gpus(self, parents: list[str]) -> None:
        """GPUs in order, the same number under each parent, the rest under the last."""
        each = -(-self.gpus // len(parents))
        for i in range(self.gpus):
            self.place_gpu(i, parents[min(i // each, len(parents) - 1)], 16)

    def place_gpu(self, number: int, parent: str, lanes: int) -> None:
        """One GPU in a slot of its own width."""
        self.devices.append(Device(f"GPU{number}", "gpu", self.gpu.name, gpu=self.gpu.id))
        self._slot(parent, f"GPU{number}", lanes)

    def join(self, joined: dict[tuple[int, int], int]) -> None:
        """Pairs of GPUs, and by how many of their own links."""
        for (a, b), count in joined.items():
            if max(a, b) < self.gpus:
                self._own_links(f"GPU{a}", f"GPU{b}", count)

    def nvswitch(self) -> None:
        # the switches work as one: every link of a GPU reaches every other GPU at full rate
        self.devices.append(Device("NVSW", "nvswitch", "NVSwitch"))
        for i in range(self.gpus):
            self._own_links(f"GPU{i}", "NVSW", self.gpu.own_links)

    def _slot(self, parent: str, child: str, lanes: int) -> None:
        slot = Slot(self.gpu.pcie_generation, min(lanes, self.gpu.pcie_lanes))
        self.wires.append(pcie_wire(parent, child, slot))

    def _own_links(self, a: str, b: str, count: int) -> None:
        if self.gpu.own_link is None:
            raise ValueError(f"{self.gpu.id} has no links of its own")
        self.wires.append(gpu_link_wire(a, b, self.gpu.own_link, count))


def _workstation(build: _Builder) -> None:
    """All GPUs directly on one CPU."""
    build.place_gpus(build.sockets(1))


def _dual_socket(build: _Builder) -> None:
    """GPUs directly on two CPUs."""
    build.place_gpus(build.sockets(2))


def _dual_root(build: _Builder) -> None:
    """Two CPUs, two PCIe switches under each: Supermicro 4028GR-TRT, 4029GP-TRT."""
    bridges = build.sockets(2)
    switches = [build.switch(f"SW{i}", bridges[i // 2], "PEX 8748") for i in range(4)]
    build.place_gpus(switches)


def _single_root(build: _Builder) -> None:
    """One CPU, two PCIe switches under it: Supermicro 4028GR-TR2, 4029GP-TRT2."""
    (bridge,) = build.sockets(1)
    build.place_gpus([build.switch(f"SW{i}", bridge, "PEX 8796") for i in range(2)])


def _cascaded(build: _Builder) -> None:
    """One CPU, a PCIe switch, and a second one behind it: Supermicro 4029GP-TRT3."""
    (bridge,) = build.sockets(1)
    first = build.switch("SW0", bridge, "PEX 8796")
    build.place_gpus([first, build.switch("SW1", first, "PEX 8796")])


def _cube_mesh(build: _Builder) -> None:
    """Two quads of GPUs joined by NVLink: NVIDIA DGX-1, HPE Apollo 6500, AWS p3.16xlarge."""
    _switched_host(build)
    build.join(_CUBE_MESH_P100 if build.gpu.nvlink_links == 4 else _CUBE_MESH_V100)


def _pairs(build: _Builder) -> None:
    """GPUs bridged two by two."""
    build.place_gpus(build.sockets(2 if build.gpus > 4 else 1))
    # IBM's S822LC and AC922 are the only machines that pair SXM2: the other half of the links goes to the CPU
    between = build.gpu.own_links // (2 if build.gpu.form_factor == "SXM2" else 1)
    build.join({(i, i + 1): between for i in range(0, build.gpus - 1, 2)})


def _nvswitch(build: _Builder) -> None:
    """Every GPU reaches every other at full NVLink rate: NVIDIA DGX-2, DGX A100, HGX H100, HGX B200, GB200 NVL72."""
    if build.gpu.form_factor == "superchip":
        _superchip_trays(build)
    else:
        _switched_host(build)
    build.nvswitch()


def _full_mesh(build: _Builder) -> None:
    """Every GPU has links of its own to every other: AMD Instinct MI300X, Intel Gaudi, HGX boards with four GPUs."""
    _switched_host(build)
    count = build.gpu.own_links // max(build.gpus - 1, 1)
    build.join(dict.fromkeys(combinations(range(build.gpus), 2), count))


def _torus(build: _Builder) -> None:
    """Rows and columns of chips, each joined to its neighbours, the ends of a row to each other: Google TPU, AWS
    Trainium."""
    _switched_host(build)
    rows = next(n for n in range(math.isqrt(build.gpus), 0, -1) if build.gpus % n == 0)
    columns = build.gpus // rows
    joined: set[tuple[int, int]] = set()
    for i in range(build.gpus):
        row, column = divmod(i, columns)
        right = row * columns + (column + 1) % columns
        below = (row + 1) % rows * columns + column
        joined |= {(min(i, other), max(i, other)) for other in (right, below) if other != i}
    build.join(dict.fromkeys(sorted(joined), 1))


def _consumer(build: _Builder) -> None:
    """A desktop board: the CPU's 16 lanes go to one slot or are halved between two; more slots hang on
    four lanes of the chipset."""
    (bridge,) = build.sockets(1)
    for i in range(min(build.gpus, 2)):
        build.place_gpu(i, bridge, 16 if build.gpus == 1 else 8)
    if build.gpus > 2:
        chipset = build.switch("SW0", bridge, "chipset", lanes=4)
        for i in range(2, build.gpus):
            build.place_gpu(i, chipset, 4)


def _switched_host(build: _Builder) -> None:
    """The host side of SXM machines: two sockets, two GPUs under each PCIe switch."""
    bridges = build.sockets(2 if build.gpus > 4 else 1)
    count = max(1, -(-build.gpus // 2))
    build.place_gpus(
        [
            build.switch(f"SW{i}", bridges[i * len(bridges) // count], "PCIe switch")
            for i in range(count)
        ]
    )


def _superchip_trays(build: _Builder) -> None:
    """A rack of trays with two Grace CPUs each, and one (GH200) or two (GB200, GB300) GPUs on each CPU: only NVLink
    joins the trays."""
    # GH200 NVL32: 16 trays with two superchips. GB200 NVL72: 18 compute trays with 4 GPUs (NVIDIA's multi-node tuning guide)
    on_a_cpu = 1 if _is_grace_hopper(build.gpu) else 2
    build.place_gpus(build.sockets(-(-build.gpus // on_a_cpu), together=2))
    build.notes.append(
        "NVLink-C2C joins CPU and GPUs of a superchip, and a link of NVIDIA's own the CPUs of a tray: the catalog has "
        "no rate of either, PCIe and UPI are assumed, which are slower"
    )


def _between_pairs(gpu: Gpu) -> bool:
    return gpu.nvlink_bridge or gpu.form_factor == "SXM2" or _is_grace_hopper(gpu)


def _in_a_cube_mesh(gpu: Gpu) -> bool:  # later boards have switches, or four GPUs
    return gpu.nvlink_id is not None and gpu.form_factor == "SXM2"


def _to_switches(gpu: Gpu) -> bool:
    return gpu.nvswitch_gpus is not None


def _to_all_others(gpu: Gpu) -> bool:
    return gpu.mesh_gpus is not None or gpu.fabric_topology == "full-mesh"


def _most_switched(gpu: Gpu) -> float:
    return gpu.nvswitch_gpus or math.inf


def _most_meshed(gpu: Gpu) -> float:
    if gpu.mesh_gpus is not None:
        return gpu.mesh_gpus
    return gpu.own_links + 1 if gpu.fabric_topology == "full-mesh" else math.inf


def _in_a_desktop(gpu: Gpu) -> bool:
    return gpu.form_factor == "PCIe"


def _is_grace_hopper(gpu: Gpu) -> bool:
    return gpu.form_factor == "superchip" and gpu.nvlink_generation == 4


def _to_neighbours(gpu: Gpu) -> bool:
    return gpu.fabric_topology == "torus"


PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset("workstation", "gtx-1080-ti", 4, _workstation),
        Preset("dual-socket", "rtx-a6000", 8, _dual_socket),
        Preset("dual-root", "gtx-1080-ti", 8, _dual_root),
        Preset("single-root", "gtx-1080-ti", 8, _single_root),
        Preset("cascaded", "gtx-1080-ti", 8, _cascaded),
        Preset(
            "nvlink-hybrid-cube-mesh", "v100-sxm2-16gb", 8, _cube_mesh, _in_a_cube_mesh, lambda _: 8
        ),
        Preset("nvlink-pairs", "rtx-3090", 4, _pairs, _between_pairs),
        Preset("nvswitch", "a100-sxm4-80gb", 8, _nvswitch, _to_switches, _most_switched),
        Preset("full-mesh", "mi300x", 8, _full_mesh, _to_all_others, _most_meshed),
        Preset("torus", "trainium-1", 16, _torus, _to_neighbours),
        Preset("consumer", "rtx-4090", 2, _consumer, _in_a_desktop),
    )
}


def topologies_of(gpu: Gpu) -> list[Topology]:
    """What machines can be built with this GPU's links."""
    return [preset.name for preset in PRESETS.values() if preset.takes(gpu)]


def usual_topology(gpu: Gpu, count: int) -> Topology:
    """How machines with this GPU are mostly built, where nobody says it."""
    if count > 1 and gpu.fabric_topology is not None and count <= _most_meshed(gpu):
        return gpu.fabric_topology
    if count > 1 and _is_grace_hopper(gpu):  # racks of superchips came with the next one
        return "full-mesh" if count <= _most_meshed(gpu) else "dual-socket"
    if count > 1 and _to_switches(gpu):
        return "nvswitch"
    if count > 1 and _in_a_cube_mesh(gpu):
        return "nvlink-hybrid-cube-mesh" if count in (4, 8) else "dual-socket"
    return "workstation" if count <= 4 else "dual-socket"


def refuse_impossible(name: str, gpu: Gpu, gpus: int) -> None:
    """Raises where no machine joins such GPUs like that: for lack of links, or because none was ever built."""
    if not PRESETS[name].takes(gpu):
        raise UserMistake(
            f"{gpu.id} can't be wired as {name}: {_why_not(name, gpu)}; it can be wired as "
            + ", ".join(topologies_of(gpu))
        )
    most = PRESETS[name].most(gpu)
    if gpus > most:
        raise UserMistake(
            f"a machine with {gpu.id} wired as {name} has up to {most:g} GPUs, got {gpus}; "
            + _for_more(gpu, gpus, int(most))
        )


def _for_more(gpu: Gpu, gpus: int, most: int) -> str:
    if gpus <= (gpu.nvswitch_gpus or 0):
        return f"so many are joined by nvswitch, up to {gpu.nvswitch_gpus}"
    machines = -(-gpus // most)
    return f"take several machines, as in {machines}x{most}x{gpu.id}@100G"


def _why_not(name: str, gpu: Gpu) -> str:
    has = f"it has {gpu.own_links_words}"
    if name == "consumer":
        return f"it is no PCIe card ({gpu.form_factor})"
    if gpu.nvlink_id is None or gpu.nvlink_bridge or name == "torus":
        return has
    return f"{has}, and no machine was built that joins it so"


def build_preset(name: str, gpu: Gpu, gpus: int, socket_link: str | None = None) -> MachineGraph:
    """The machine of this topology with these GPUs."""
    if name not in PRESETS:
        raise UnknownName("topology preset", name, PRESETS)
    refuse_impossible(name, gpu, gpus)
    builder = _Builder(gpu, gpus, socket_link)
    PRESETS[name].build(builder)
    peers = pcie_peers([gpu])
    return MachineGraph(
        f"{name} with {gpus} × {gpu.id}",
        tuple(builder.devices),
        tuple(builder.wires),
        peers,
        tuple(builder.notes),
    )


def machine_graph(
    topology: str, gpu: Gpu, count: int, socket_link: str | None = None
) -> MachineGraph:
    """The same; asked for again, it is the same object, so cached answers are kept."""
    return _kept_graph(topology, gpu.id, count, socket_link)


@lru_cache(maxsize=256)
def _kept_graph(topology: str, gpu: str, count: int, socket_link: str | None) -> MachineGraph:
    return build_preset(topology, gpus().get(gpu), count, socket_link)


if set(PRESETS) != set(get_args(Topology)):
    raise AssertionError("every topology of the specs has its preset")
