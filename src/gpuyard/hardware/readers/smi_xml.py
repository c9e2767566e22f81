"""Reads `nvidia-smi -q -x`: which GPUs a machine has and how wide their slots are."""

from gpuyard.catalog import Gpu, gpus
from gpuyard.errors import UserMistake
from gpuyard.hardware.graph import (
    UNKNOWN_SLOT_NOTE,
    USUAL_SLOT,
    Device,
    MachineGraph,
    Slot,
    Wire,
    internal_wire,
    pcie_peers,
    pcie_wire,
    slot_of_gpu,
)
from gpuyard.hardware.product_names import catalog_gpu
from gpuyard.hardware.readers.xml_text import Element

_MOST_GPUS = 72
_LINK = ("pci", "pci_gpu_link_info")
_BLIND = (
    "nvidia-smi -q does not show sockets, PCIe switches or NVLinks: all GPUs are drawn on one CPU, "
    "with a host bridge per PCI domain; nvidia-smi topo -m shows more"
)


def graph_from_smi(root: Element, source: str, gpu: str | None = None) -> MachineGraph:
    """The machine under an <nvidia_smi_log>; `gpu` is a catalog id where the names are not known."""
    listed = root.all("gpu")
    if not listed:
        raise UserMistake(f"{root.place}: <nvidia_smi_log> lists no <gpu>")
    if len(listed) > _MOST_GPUS:
        raise UserMistake(
            f"{root.place}: one machine has at most {_MOST_GPUS} GPUs, this one has {len(listed)}"
        )
    named = gpus().get(gpu) if gpu else None
    notes = [_BLIND]
    attached = root.find("attached_gpus")
    if attached and attached != str(len(listed)):
        notes.append(f"{attached} GPUs are attached, but the file lists {len(listed)}")
    sockets, leaves, wires = [Device("CPU0", "socket", "CPU 0")], [], []
    models = [named or catalog_gpu(element.find("product_name") or "") for element in listed]
    bridges: dict[str, str] = {}
    for i, (element, model) in enumerate(zip(listed, models, strict=True)):
        domain = _domain(element)
        if domain not in bridges:
            bridges[domain] = f"HB{len(bridges)}"
            sockets.append(Device(bridges[domain], "host-bridge", f"PCI domain {domain}"))
            wires.append(internal_wire("CPU0", bridges[domain], slot_of_gpu(model)))
        label = element.find("product_name") or element.attributes.get("id", "")
        leaves.append(Device(f"GPU{i}", "gpu", label, gpu=model.id if model else None))
        wires.append(_slot_wire(element, bridges[domain], f"GPU{i}", model, notes))
    return MachineGraph(
        source, (*sockets, *leaves), tuple(wires), pcie_peers(models), tuple(dict.fromkeys(notes))
    )


def _slot_wire(element: Element, bridge: str, id: str, gpu: Gpu | None, notes: list[str]) -> Wire:
    """The slot under load: the widest generation it can have, on the lanes that it has now."""
    now, most = (
        _number(element.find(*_LINK, "pcie_gen", f"{which}_link_gen"))
        for which in ("current", "max")
    )
    lanes = _number(element.find(*_LINK, "link_widths", "current_link_width"))
    most_lanes = _number(element.find(*_LINK, "link_widths", "max_link_width"))
    usual = slot_of_gpu(gpu)
    generation = most or (now if now and now > 1 else usual.generation)
    slot = Slot(generation, lanes or most_lanes or usual.lanes)
    if now and now < generation:
        notes.append(
            f"the link of {id} was idling at generation {now} when it was read; {slot} is assumed"
        )
    if not (most or gpu) and slot.generation == USUAL_SLOT.generation:
        notes.append(UNKNOWN_SLOT_NOTE)
    if lanes and most_lanes and lanes < most_lanes:
        notes.append(f"{id} uses {lanes} of {most_lanes} lanes")
    return pcie_wire(bridge, id, slot)


def _domain(element: Element) -> str:
    """The domain of a bus id like 00000000:01:00.0."""
    address = element.find("pci", "pci_bus_id") or element.attributes.get("id", "")
    domain, separator, _ = address.partition(":")
    return domain[-4:] if separator else "0000"


def _number(words: str | None) -> int | None:
    """The number of "16x" or "3"."""
    digits = (words or "").removesuffix("x")
    return int(digits) if digits.isdecimal() and len(digits) < 4 and 0 < int(digits) <= 32 else None
