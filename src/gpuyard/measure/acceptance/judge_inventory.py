"""Compares what the nodes report with the spec and with each other."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from gpuyard.hardware.product_names import find_catalog_gpu
from gpuyard.measure.acceptance.expected import ClusterPromise
from gpuyard.measure.acceptance.records import Check, GpuFacts, Grade, Inventory
from gpuyard.units import format_bytes

_SIMILAR = 0.05  # memory and disks of the same size differ by what the firmware reserves


def judge_inventory(
    promise: ClusterPromise, inventories: Mapping[str, Inventory], *, emulated: bool
) -> list[Check]:
    """Judge all nodes. An emulated cluster in which no node reports a GPU has synthetic ones."""
    checks: list[Check] = []
    if not emulated or any(inventory.gpus for inventory in inventories.values()):
        for name, inventory in inventories.items():
            checks += _judge_gpus(promise, name, inventory)
    for name, inventory in inventories.items():
        checks += _judge_cores(promise, name, inventory)
    return [*checks, *_compare_nodes(inventories), *_judge_lanes(inventories)]


def _judge_gpus(promise: ClusterPromise, node: str, inventory: Inventory) -> Iterator[Check]:
    promised, count = promise.machine.gpus, len(inventory.gpus)
    if count != promised:
        yield Check(
            phase="inventory",
            node=node,
            subject="GPUs",
            grade="fail" if count < promised else "warn",
            text=f"{count} of {promised} GPUs are there",
            ratio=count / promised,
            lost_share=max(0.0, (promised - count) / promise.gpus),
            next_step="look for the missing GPU in lspci and in dmesg (NVRM, Xid); reseat or replace it",
        )
    for index, gpu in enumerate(inventory.gpus):
        for grade, text, next_step in _find_gpu_faults(promise, gpu):
            yield Check(
                phase="inventory",
                node=node,
                subject=f"GPU{index}",
                grade=grade,
                text=text,
                next_step=next_step,
            )


def _find_gpu_faults(promise: ClusterPromise, gpu: GpuFacts) -> Iterator[tuple[Grade, str, str]]:
    """Yield the grade, the text, and the next step of each fault."""
    catalog_gpu = find_catalog_gpu(gpu.name) if gpu.name else None
    if catalog_gpu is not None and catalog_gpu.id != promise.gpu.id:
        text = f"{gpu.name} instead of {promise.gpu.name}"
        yield "fail", text, "compare the delivery with the order"
    if gpu.uncorrected_errors:
        text = f"{gpu.uncorrected_errors} uncorrectable memory errors"
        yield "fail", text, "run nvidia-smi -q -d ECC,ROW_REMAPPER, and have the GPU replaced"
    links = promise.gpu.nvlink_links if promise.machine.topology == "nvswitch" else None
    if links is not None and gpu.nvlinks is not None and gpu.nvlinks < links:
        text = f"{gpu.nvlinks} of {links} NVLinks are up"
        yield "fail", text, "run nvidia-smi nvlink -s, and read the log of the fabric manager"
    if gpu.slowdowns:
        text = f"its clock is lowered: {', '.join(gpu.slowdowns)}"
        yield "warn", text, "check cooling, power supplies, and nvidia-smi -q -d PERFORMANCE"


def _judge_cores(promise: ClusterPromise, node: str, inventory: Inventory) -> Iterator[Check]:
    promised = promise.machine.cores
    if promised is not None and inventory.cores < promised:
        yield Check(
            phase="inventory",
            node=node,
            subject="cores",
            grade="fail",
            text=f"{inventory.cores} of {promised} cores can be used",
            ratio=inventory.cores / promised,
            next_step="check the BIOS, the CPU model, and limits of the container or Slurm",
        )


def _format_list(values: list[str]) -> str:
    return " + ".join(sorted(values)) or "none"


def _format_set(values: Iterable[int | None]) -> str:
    return _format_list([str(value) for value in set(values) if value is not None])


def _format_nics(inventory: Inventory) -> str:
    return _format_list(
        [
            "unknown rate"
            if nic.bits_per_second is None
            else f"{nic.bits_per_second / 1e9:g} Gbit/s"
            for nic in inventory.nics
        ]
    )


_Read = Callable[[Inventory], object]
# what nodes of one cluster have in common, and the grade of a node that differs
_COMMON: tuple[tuple[str, _Read, Grade], ...] = (
    ("CPU", lambda i: i.cpu_model, "warn"),
    ("cores", lambda i: i.cores, "fail"),
    ("memory", lambda i: format_bytes(i.memory_bytes), "fail"),
    ("kernel", lambda i: i.kernel, "warn"),
    ("operating system", lambda i: i.os, "warn"),
    ("driver", lambda i: i.driver or "none", "warn"),
    ("PyTorch", lambda i: i.torch, "warn"),
    ("gpuyard", lambda i: i.gpuyard, "warn"),
    ("GPU models", lambda i: _format_list(list({g.name or "unknown" for g in i.gpus})), "fail"),
    ("GPU memory", lambda i: _format_set(g.memory_bytes for g in i.gpus), "fail"),
    ("PCIe generation", lambda i: _format_set(g.max_generation for g in i.gpus), "fail"),
    ("GPU clock (MHz)", lambda i: _format_set(g.max_clock_mhz for g in i.gpus), "fail"),
    ("NVLinks", lambda i: _format_set(g.nvlinks for g in i.gpus), "fail"),
    ("disks", lambda i: _format_list([format_bytes(disk.bytes) for disk in i.disks]), "warn"),
    ("network cards", _format_nics, "warn"),
    ("IOMMU", lambda i: i.iommu or "unknown", "warn"),
    ("ACS bridges", lambda i: i.acs_bridges, "warn"),
)


def _compare_nodes(inventories: Mapping[str, Inventory]) -> Iterator[Check]:
    """Compare each node with the majority; without one, no node is blamed."""
    for subject, read, grade in _COMMON:
        values = {name: read(inventory) for name, inventory in inventories.items()}
        if subject == "memory":
            values = _round_memory(inventories)
        (common, count), *_ = Counter(values.values()).most_common(1) or [(None, 0)]
        if count * 2 <= len(values) or count == len(values):
            continue
        for name, value in values.items():
            # a node without GPUs is named once, for their number
            if value != common and not (value == "none" and not inventories[name].gpus):
                yield Check(
                    phase="inventory",
                    node=name,
                    subject=subject,
                    grade=grade,
                    text=f"{value}; {count} of {len(values)} nodes have {common}",
                    next_step="make the nodes equal, or describe them as two clusters",
                )


def _round_memory(inventories: Mapping[str, Inventory]) -> dict[str, object]:
    """Give nodes whose memory differs by a few percent the same text."""
    sizes = sorted(inventory.memory_bytes for inventory in inventories.values())
    typical = sizes[len(sizes) // 2]
    return {
        name: format_bytes(
            typical
            if abs(inventory.memory_bytes - typical) <= _SIMILAR * typical
            else inventory.memory_bytes
        )
        for name, inventory in inventories.items()
    }


def _judge_lanes(inventories: Mapping[str, Inventory]) -> Iterator[Check]:
    """Name GPUs that use fewer of their lanes than most others do; if most do, it is often the host's design."""
    known = [
        (name, index, gpu.lanes, gpu.max_lanes)
        for name, inventory in inventories.items()
        for index, gpu in enumerate(inventory.gpus)
        if gpu.lanes and gpu.max_lanes
    ]
    if not known:
        return
    counts = Counter((lanes, most) for _, _, lanes, most in known)
    usual, usual_most = max(counts, key=lambda pair: (counts[pair], pair[0]))
    for name, index, lanes, most in known:
        if lanes < min(most, usual):
            yield Check(
                phase="inventory",
                node=name,
                subject="PCIe lanes",
                grade="fail",
                text=f"GPU{index} uses {lanes} of {most} lanes",
                next_step="reseat the GPU and its riser, and check the slot in lspci -vv (LnkSta)",
            )
    if usual < usual_most:
        yield Check(
            phase="inventory",
            subject="PCIe lanes",
            grade="warn",
            text=f"{'all' if len(counts) == 1 else 'most'} GPUs use {usual} of {usual_most} lanes",
            next_step="check with the vendor whether the slots have all lanes",
        )
