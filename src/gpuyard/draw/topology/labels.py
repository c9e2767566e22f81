"""Labels for devices and wires, which the SVG and the terminal drawing share."""

import math
from collections import Counter
from collections.abc import Sequence

from gpuyard.hardware.graph import GPU_LINKS, LINK_PREFIX, Device, DeviceKind, MachineGraph, Wire
from gpuyard.units import format_byte_rate

KIND_NAMES: dict[DeviceKind, str] = {
    "socket": "CPU",
    "host-bridge": "host bridge",
    "switch": "PCIe switch",
    "gpu": "GPU",
    "nic": "NIC",
    "nvme": "NVMe",
    "nvswitch": "NVSwitch",
}
_PLURALS: dict[DeviceKind, str] = {
    "socket": "CPUs",
    "switch": "PCIe switches",
    "nic": "NICs",
    "nvme": "NVMe drives",
    "nvswitch": "NVSwitches",
}


_CLASSES = {
    "NV": "NV#: over # NVLinks",
    "FL": "FL#: over # links between GPUs",
    "PIX": "PIX: through one PCIe switch",
    "PXB": "PXB: through several PCIe switches",
    "PHB": "PHB: through a host bridge",
    "NODE": "NODE: between host bridges of one CPU",
    "SYS": "SYS: across the link between CPUs",
    "N/A": "N/A: no known connection",
}


def describe_path_classes(classes: Sequence[Sequence[str]]) -> list[str]:
    """Explain the path classes that occur in a matrix, the fastest first."""
    present = {name for row in classes for name in row}
    present |= {name[:2] for name in present if name[:2] in ("NV", "FL")}
    return [meaning for name, meaning in _CLASSES.items() if name in present]


def format_caption(device: Device) -> str:
    """Format the text under a device's id: its label, its kind if the label lacks it, and a CPU's cores."""
    parts = [device.label] if _label_adds_to_id(device) else []
    kind = KIND_NAMES[device.kind]
    obvious = (
        device.kind in ("gpu", "host-bridge")
        or kind.lower() in f"{device.id} {device.label}".lower()
    )
    if not obvious or not parts:
        parts.append(kind)
    if device.kind == "socket":
        parts += [f"NUMA {device.numa_node}"] if device.numa_node is not None else []
        parts += [f"cores {device.cpu_affinity}"] if device.cpu_affinity else []
        parts = parts[1:] if parts[0] == kind and len(parts) > 1 else parts
    return " · ".join(parts)


def format_wire_name(wire: Wire) -> str:
    """Name the type and width of a wire: "PCIe 3.0 ×16" or "NV2"."""
    if wire.kind in GPU_LINKS:
        return f"{LINK_PREFIX[wire.kind]}{wire.width}"
    if wire.kind == "pcie":
        generation = f" {wire.generation}.0" if wire.generation else ""
        has_width = wire.generation or wire.width > 1
        return f"PCIe{generation} ×{wire.width}" if has_width else "PCIe"
    return {"socket": "socket link", "internal": "inside the CPU"}[wire.kind]


def format_rate(bytes_per_second: float) -> str:
    """Format a rate as "11.8 GB/s", or as "?" if it is unknown."""
    return format_byte_rate(bytes_per_second) if math.isfinite(bytes_per_second) else "?"


def format_gigabytes(bytes_per_second: float | None) -> str:
    """Format a rate in GB/s without its unit, for a table cell."""
    if not bytes_per_second or not math.isfinite(bytes_per_second):
        return "–"
    return f"{bytes_per_second / 1e9:.{'0f' if bytes_per_second >= 999.5e9 else '3g'}}"


def summarize_machine(graph: MachineGraph) -> str:
    """Summarize a machine: "8 × Tesla V100 · 2 CPUs · 4 PCIe switches"."""
    models = Counter(device.label or device.gpu or "GPU" for device in graph.devices_of_kind("gpu"))
    parts = [f"{count} × {model}" for model, count in models.items()] or ["no GPUs"]
    for kind, plural in _PLURALS.items():
        count = len(graph.devices_of_kind(kind))
        if count:
            parts.append(f"{count} {KIND_NAMES[kind] if count == 1 else plural}")
    return " · ".join(parts)


def _label_adds_to_id(device: Device) -> bool:
    compact = device.label.replace(" ", "").lower()
    return compact not in ("", device.id.replace(" ", "").lower())
