"""The bus bandwidth that a cluster should reach, and what it would be with one thing wrong."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import exp
from typing import Literal

import numpy as np

from gpuyard.catalog.published_rows import CollectiveRow
from gpuyard.choices import Collective
from gpuyard.hardware.clusters import resolve_machine
from gpuyard.measure.record import Cause
from gpuyard.predictor.constants import LinkClass, link_log_width, load_tuning
from gpuyard.predictor.platform import find_network
from gpuyard.predictor.validation.collectives import classify, predict_bus_bandwidths
from gpuyard.specs import Cluster, Topology

# a broadcast and a reduce are pipelined over the same ring, so they have the bus bandwidth of its halves
_RING_OPERATIONS: dict[Collective, Literal["all_reduce", "all_gather", "reduce_scatter"]] = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "broadcast": "all_gather",
    "reduce": "reduce_scatter",
}
_MAX_GPUS_PER_CPU = 4


@dataclass(frozen=True)
class ExpectedRates:
    """The 90% interval of the bus bandwidth at each size, in bytes per second."""

    link: LinkClass
    expected: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True)
class Fault:
    """One thing that may be wrong, and the bus bandwidth that the model predicts with it."""

    cause: Cause
    bytes_per_second: float


def predict_rates(
    cluster: Cluster, gpus: int, nodes: int, operation: Collective, sizes: Sequence[int]
) -> ExpectedRates:
    """Predict the bus bandwidth of a collective over some GPUs of a cluster at each size."""
    rows = _create_rows(cluster, gpus, nodes, operation, sizes)
    rates = predict_bus_bandwidths(rows, load_tuning())
    link = classify(rows[0])
    width = link_log_width(link)
    return ExpectedRates(
        link,
        tuple(map(float, rates)),
        tuple(float(rate) * exp(-width) for rate in rates),
        tuple(float(rate) * exp(width) for rate in rates),
    )


def list_faults(
    cluster: Cluster, gpus: int, nodes: int, operation: Collective, size: int
) -> Iterator[Fault]:
    """Yield everything that may be wrong with such a cluster, with the bus bandwidth that it would leave."""
    (row,) = _create_rows(cluster, gpus, nodes, operation, [size])
    link = classify(row)
    host: Topology = "workstation" if row.machine_gpus <= _MAX_GPUS_PER_CPU else "dual-socket"
    faults: list[tuple[CollectiveRow, str, str, str]] = []
    if nodes > 1 and row.network is not None:
        if row.network.rails > 1:
            one_port = row.network.model_copy(update={"rails": 1})
            faults.append(
                (replace(row, network=one_port), "one-port",
                 f"one of the {row.network.rails} network ports carries everything",
                 "NCCL_DEBUG=INFO shows which are used (NET/IB); check NCCL_IB_HCA and ibstat")
            )  # fmt: skip
        if "ethernet" not in (row.network.link or "") or row.network.protocol == "rdma":
            tcp = row.network.model_copy(update={"protocol": "tcp"})
            faults.append(
                (replace(row, network=tcp), "tcp",
                 "NCCL uses TCP sockets instead of RDMA",
                 "NCCL_DEBUG=INFO says NET/Socket then; install the RDMA plug-in, and check ibv_devinfo")
            )  # fmt: skip
    if link == "nvlink" and row.nvls and operation == "all_reduce":
        faults.append(
            (replace(row, nvls=False), "no-nvls",
             "the NVSwitches don't add up numbers (NVLS is off)",
             "check NCCL_NVLS_ENABLE, that the NCCL version supports it, and nvidia-smi -q for the fabric's state")
        )  # fmt: skip
    if link == "nvlink":
        faults.append(
            (replace(row, topology=host), "no-nvlink",
             "traffic uses PCIe, not NVLink",
             "check nvidia-smi topo -m, nvidia-smi nvlink --status, and that the fabric manager runs")
        )  # fmt: skip
    if link != "staged":
        faults.append(
            (replace(row, topology=host if link == "nvlink" else row.topology, peer_to_peer=False),
             "no-peer-access",
             "GPUs have no peer access, so host memory stages every message",
             "check nvidia-smi topo -p2p r, NCCL_P2P_DISABLE, ACS (lspci -vv), and the IOMMU (iommu=pt)")
        )  # fmt: skip
    rates = predict_bus_bandwidths([fault[0] for fault in faults], load_tuning())
    for (_, name, why, next_step), rate in zip(faults, rates, strict=True):
        yield Fault(Cause(name=name, why=why, next_step=next_step), float(rate))


def _create_rows(
    cluster: Cluster, gpus: int, nodes: int, operation: Collective, sizes: Sequence[int]
) -> list[CollectiveRow]:
    gpu, machine = resolve_machine(cluster)
    return [
        CollectiveRow(
            thread="",
            gpu=gpu.id,
            topology=machine.topology,
            machine_gpus=max(machine.gpus, -(-gpus // nodes)),
            peer_to_peer=machine.peer_to_peer
            and (gpu.pcie_peer_to_peer or machine.topology not in ("workstation", "dual-socket")),
            nodes=nodes,
            gpus=gpus,
            network=find_network(cluster) if nodes > 1 else None,
            op=_RING_OPERATIONS[operation],
            nvls=True,
            size_bytes=float(size),
            bytes_per_second=np.nan,
        )
        for size in sizes
    ]
