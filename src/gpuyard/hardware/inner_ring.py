"""The ring through some GPUs of one machine: its slowest link sets its rate.

For rings that use several NVLinks of a GPU at once the rate is that of the links together, which is
what NCCL's bus bandwidth reports.
"""

from dataclasses import dataclass
from typing import Literal

from gpuyard.catalog import Gpu, Link, links

# NVLinks of a GPU that stay inside the set when 2, 4 or 8 GPUs of a hybrid cube mesh are used:
# V100 has six (two to one neighbour, one to two others, two to the other quad), P100 four, all single.
# NVIDIA DGX-1 system architecture whitepaper (2017), figures 4 and 5.
_CUBE_MESH_LINKS = {4: {2: 1, 4: 3, 8: 4}, 6: {2: 2, 4: 4, 8: 6}}

# The socket link of machines of a PCIe generation's years, as NCCL plans with it.
_SOCKET_LINK = {3: "upi-10.4", 4: "infinity-fabric-2", 5: "upi-16", 6: "upi-20"}

# Without peer access a message is written to host memory and read from there; both copies share the
# GPU's own slot only in opposite directions, but the two hops are not perfectly pipelined.
_STAGED_SHARE = 0.6


@dataclass(frozen=True)
class InnerRing:
    """What an all-reduce inside the machine runs at."""

    bytes_per_second: float
    latency_seconds: float
    kind: Literal["pcie", "nvlink", "socket"]
    why: str


def inner_ring(gpu: Gpu, topology: str, gpus_in_machine: int, gpus_used: int) -> InnerRing:
    """The ring through the best `gpus_used` of the machine's GPUs."""
    pcie = pcie_link(gpu)
    nvlinks = _nvlinks_inside(gpu, topology, gpus_used)
    if nvlinks and gpu.nvlink_id is not None:
        one = links().get(gpu.nvlink_id)
        return InnerRing(
            nvlinks * one.effective_bytes_per_second,
            one.latency_seconds,
            "nvlink",
            f"{nvlinks} × {one.name} of each GPU",
        )
    share = 1.0 if gpu.pcie_peer_to_peer else _STAGED_SHARE
    staged = "" if gpu.pcie_peer_to_peer else ", staged through host memory"
    crosses_sockets = topology in ("dual-socket", "dual-root") and gpus_used > gpus_in_machine / 2
    if crosses_sockets:
        socket = links().get(_SOCKET_LINK[gpu.pcie_generation])
        slowest = min(socket, pcie, key=lambda link: link.effective_bytes_per_second)
        return InnerRing(
            slowest.effective_bytes_per_second * share,
            socket.latency_seconds + pcie.latency_seconds,
            "socket",
            f"{socket.name} between the two CPUs{staged}",
        )
    return InnerRing(
        pcie.effective_bytes_per_second * share,
        pcie.latency_seconds,
        "pcie",
        f"{pcie.name}{staged}",
    )


def pcie_link(gpu: Gpu) -> Link:
    """The slot that the GPU sits in."""
    return links().get(f"pcie-{gpu.pcie_generation}-x{gpu.pcie_lanes}")


def _nvlinks_inside(gpu: Gpu, topology: str, gpus_used: int) -> int:
    """How many of a GPU's NVLinks a ring over so many GPUs can use; 0 where it must take PCIe."""
    total = gpu.nvlink_links or 0
    match topology:
        case "nvswitch":
            return total
        case "nvlink-pairs":
            return total if gpus_used <= 2 else 0
        case "nvlink-hybrid-cube-mesh" if total in _CUBE_MESH_LINKS:
            reached = _CUBE_MESH_LINKS[total]
            return reached[min(size for size in reached if size >= min(gpus_used, 8))]
        case _:
            return 0
