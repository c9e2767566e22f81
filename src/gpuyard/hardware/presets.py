"""Machines by their topology: how GPUs hang under switches, host bridges and sockets, built for any GPU."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import get_args

from gpuyard.catalog import Gpu, gpus
from gpuyard.errors import UnknownName, UserMistake
from gpuyard.hardware.graph import Device, MachineGraph, Wire
from gpuyard.hardware.wires import (
    Slot,
    internal_wire,
    nvlink_wire,
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


@dataclass
class _Builder:
    gpu: Gpu
    gpus: int
    devices: list[Device] = field(default_factory=list)
    wires: list[Wire] = field(default_factory=list)

    def sockets(self, count: int) -> list[str]:
        """CPUs in a row, each with one host bridge, joined by the link of their years."""
        slot = slot_of_gpu(self.gpu)
        for i in range(count):
            self.devices.append(Device(f"CPU{i}", "socket", f"CPU {i}", numa_node=i))
            self.devices.append(Device(f"HB{i}", "host-bridge", f"host bridge {i}", numa_node=i))
            self.wires.append(internal_wire(f"CPU{i}", f"HB{i}", slot))
        self.wires += [
            socket_wire(f"CPU{i - 1}", f"CPU{i}", slot, self.gpu) for i in range(1, count)
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

    def nvlinks(self, joined: dict[tuple[int, int], int]) -> None:
        for (a, b), count in joined.items():
            if max(a, b) < self.gpus:
                self._nvlink(f"GPU{a}", f"GPU{b}", count)

    def nvswitch(self) -> None:
        # the switches work as one: every link of a GPU reaches every other GPU at full rate
        self.devices.append(Device("NVSW", "nvswitch", "NVSwitch"))
        for i in range(self.gpus):
            self._nvlink(f"GPU{i}", "NVSW", self.gpu.nvlink_links or 0)

    def _slot(self, parent: str, child: str, lanes: int) -> None:
        slot = Slot(self.gpu.pcie_generation, min(lanes, self.gpu.pcie_lanes))
        self.wires.append(pcie_wire(parent, child, slot))

    def _nvlink(self, a: str, b: str, count: int) -> None:
        if self.gpu.nvlink_id is None or not count:
            raise UserMistake(f"{self.gpu.id} has no NVLink, which this topology needs")
        self.wires.append(nvlink_wire(a, b, self.gpu.nvlink_id, count))


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
    build.nvlinks(_CUBE_MESH_P100 if build.gpu.nvlink_links == 4 else _CUBE_MESH_V100)


def _pairs(build: _Builder) -> None:
    """GPUs bridged two by two."""
    build.place_gpus(build.sockets(2 if build.gpus > 4 else 1))
    count = build.gpu.nvlink_links or 0
    build.nvlinks({(i, i + 1): count for i in range(0, build.gpus - 1, 2)})


def _nvswitch(build: _Builder) -> None:
    """Every GPU reaches every other at full NVLink rate: NVIDIA DGX-2, DGX A100, HGX H100, HGX B200."""
    _switched_host(build)
    build.nvswitch()


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


PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset("workstation", "gtx-1080-ti", 4, _workstation),
        Preset("dual-socket", "rtx-a6000", 8, _dual_socket),
        Preset("dual-root", "gtx-1080-ti", 8, _dual_root),
        Preset("single-root", "gtx-1080-ti", 8, _single_root),
        Preset("cascaded", "gtx-1080-ti", 8, _cascaded),
        Preset("nvlink-hybrid-cube-mesh", "v100-sxm2-16gb", 8, _cube_mesh),
        Preset("nvlink-pairs", "rtx-3090", 4, _pairs),
        Preset("nvswitch", "a100-sxm4-80gb", 8, _nvswitch),
        Preset("consumer", "rtx-4090", 2, _consumer),
    )
}


def build_preset(name: str, gpu: Gpu, gpus: int) -> MachineGraph:
    """The machine of this topology with these GPUs."""
    if name not in PRESETS:
        raise UnknownName("topology preset", name, PRESETS)
    if name == "nvlink-hybrid-cube-mesh" and gpus > 8:
        raise UserMistake(f"a hybrid cube mesh has up to 8 GPUs, got {gpus}")
    builder = _Builder(gpu, gpus)
    PRESETS[name].build(builder)
    peers = pcie_peers([gpu])
    return MachineGraph(
        f"{name} with {gpus} × {gpu.id}", tuple(builder.devices), tuple(builder.wires), peers
    )


def machine_graph(topology: str, gpu: Gpu, count: int) -> MachineGraph:
    """The same; asked for again, it is the same object, so cached answers are kept."""
    return _kept_graph(topology, gpu.id, count)


@lru_cache(maxsize=256)
def _kept_graph(topology: str, gpu: str, count: int) -> MachineGraph:
    return build_preset(topology, gpus().get(gpu), count)


if set(PRESETS) != set(get_args(Topology)):
    raise AssertionError("every topology of the specs has its preset")
