"""Read the GPUs of a machine and their slots from the output of `nvidia-smi -q -x`."""

from gpuyard.catalog import Gpu, gpus
from gpuyard.errors import UserMistake
from gpuyard.hardware.graph import (
    DEFAULT_SLOT,
    UNKNOWN_SLOT_NOTE,
    Device,
    MachineGraph,
    Slot,
    Wire,
    create_internal_wire,
    create_pcie_wire,
    find_pcie_peers,
    get_gpu_slot,
)
from gpuyard.hardware.product_names import find_catalog_gpu
from gpuyard.hardware.readers.xml_text import Element

_MAX_GPUS = 72
_LINK_PATH = ("pci", "pci_gpu_link_info")
_LIMITS_NOTE = (
    "nvidia-smi -q does not show sockets, PCIe switches, or NVLinks: all GPUs are drawn on one CPU, "
    "with a host bridge per PCI domain; nvidia-smi topo -m shows more"
)


def graph_from_smi(root: Element, source: str, gpu: str | None = None) -> MachineGraph:
    """Build the machine of an <nvidia_smi_log> element; `gpu` is the catalog id of GPUs with unknown names."""
    elements = root.all("gpu")
    if not elements:
        raise UserMistake(f"{root.place}: <nvidia_smi_log> must contain a <gpu>")
    if len(elements) > _MAX_GPUS:
        raise UserMistake(
            f"{root.place}: one machine has at most {_MAX_GPUS} GPUs, this one has {len(elements)}"
        )
    chosen_model = gpus().get(gpu) if gpu else None
    notes = [_LIMITS_NOTE]
    attached = root.find("attached_gpus")
    if attached and attached != str(len(elements)):
        notes.append(f"{attached} GPUs are attached, but the file lists {len(elements)}")
    upper, leaves, wires = [Device("CPU0", "socket", "CPU 0")], [], []
    models = [
        chosen_model or find_catalog_gpu(element.find("product_name") or "") for element in elements
    ]
    bridges: dict[str, str] = {}
    for i, (element, model) in enumerate(zip(elements, models, strict=True)):
        domain = _read_domain(element)
        if domain not in bridges:
            bridges[domain] = f"HB{len(bridges)}"
            upper.append(Device(bridges[domain], "host-bridge", f"PCI domain {domain}"))
            wires.append(create_internal_wire("CPU0", bridges[domain], get_gpu_slot(model)))
        label = element.find("product_name") or element.attributes.get("id", "")
        leaves.append(Device(f"GPU{i}", "gpu", label, gpu=model.id if model else None))
        wires.append(_create_slot_wire(element, bridges[domain], f"GPU{i}", model, notes))
    peers = find_pcie_peers(models)
    return MachineGraph(source, (*upper, *leaves), tuple(wires), peers, tuple(dict.fromkeys(notes)))


def _create_slot_wire(
    element: Element, bridge: str, id: str, gpu: Gpu | None, notes: list[str]
) -> Wire:
    """Create the slot under load: its highest generation, with the current number of lanes."""
    generation_now, max_generation = (
        _parse_number(element.find(*_LINK_PATH, "pcie_gen", f"{which}_link_gen"))
        for which in ("current", "max")
    )
    lanes = _parse_number(element.find(*_LINK_PATH, "link_widths", "current_link_width"))
    max_lanes = _parse_number(element.find(*_LINK_PATH, "link_widths", "max_link_width"))
    default = get_gpu_slot(gpu)
    loaded_generation = generation_now if generation_now and generation_now > 1 else None
    generation = max_generation or loaded_generation or default.generation
    slot = Slot(generation, lanes or max_lanes or default.lanes)
    if generation_now and generation_now < generation:
        notes.append(
            f"the link of {id} was idle at generation {generation_now} when it was read; "
            f"{slot} is assumed"
        )
    if not (max_generation or gpu) and slot.generation == DEFAULT_SLOT.generation:
        notes.append(UNKNOWN_SLOT_NOTE)
    if lanes and max_lanes and lanes < max_lanes:
        notes.append(f"{id} uses {lanes} of {max_lanes} lanes")
    return create_pcie_wire(bridge, id, slot)


def _read_domain(element: Element) -> str:
    """Return the domain of a bus id like 00000000:01:00.0."""
    address = element.find("pci", "pci_bus_id") or element.attributes.get("id", "")
    domain, separator, _ = address.partition(":")
    return domain[-4:] if separator else "0000"


def _parse_number(text: str | None) -> int | None:
    """Return the number in "16x" or "3"."""
    digits = (text or "").removesuffix("x")
    return int(digits) if digits.isdecimal() and len(digits) < 4 and 0 < int(digits) <= 32 else None
